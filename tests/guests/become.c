/* As sudo is, if its file is root's and setuid: becomes another user, and executes a command as that one.
 *
 *   become UID COMMAND...
 *   become group             keeps its file's group instead (setgid), lets itself be dumped, and waits for a line
 */
#define _GNU_SOURCE
#include <grp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

static int wait_with_its_group(void)
{
    char line[80];
    prctl(PR_SET_DUMPABLE, 1);
    setlinebuf(stdout);
    printf("rights %d\n", getegid());
    if (!fgets(line, sizeof line, stdin))
        return 1;
    printf("end %d\n", getegid());
    return 0;
}

int main(int argc, char **argv)
{
    if (argc == 2 && strcmp(argv[1], "group") == 0)
        return wait_with_its_group();
    if (argc < 3)
        return 2;
    uid_t id = strtoul(argv[1], NULL, 10);
    if (setgroups(0, NULL) != 0 || setresgid(id, id, id) != 0 || setresuid(id, id, id) != 0) {
        perror("become");
        return 1;
    }
    execvp(argv[2], argv + 2);
    perror(argv[2]);
    return 1;
}
