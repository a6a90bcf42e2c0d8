# Hashes, regular expressions, closures, sorting, files, a pipe to a child, and signals.
use strict;
use warnings;

my $rounds = shift;
$| = 1;
my $alarms = 0;
$SIG{USR1} = sub { $alarms++ };
my $state = 1;

sub number {
    my $bound = shift;
    $state = ($state * 69069 + 12345) % 4294967296;
    return int($state / 65536) % $bound;
}

for my $round (1 .. $rounds) {
    my %seen;
    for (1 .. 60000) {
        my $word = join '', map { chr(97 + number(26)) } 1 .. 2;
        $seen{$word}++;
    }
    my @top = (sort { $seen{$b} <=> $seen{$a} || $a cmp $b } keys %seen)[0 .. 4];
    print "round $round: @top\n";

    my $text = join ' ', map { "$_=$seen{$_}" } sort keys %seen;
    my $found = () = $text =~ /([aeiou])[^aeiou]=(\d*[13579])\b/g;
    (my $turned = substr $text, 0, 60) =~ s/(\w+)=(\d+)/$2:$1/g;
    print "$found odd ones; $turned\n";

    open my $log, '>>', 'journal' or die "journal: $!";
    print $log "$round $found\n";
    close $log;
    kill 'USR1', $$ if $round % 2;

    if ($round % 5 == 0) {
        open my $child, '-|', 'wc', '-l', 'journal' or die "wc: $!";
        print <$child>;
        close $child;
        print "child: $?\n";
    }
}
print "alarms $alarms\n";
exit 4;
