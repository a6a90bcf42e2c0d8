/* A 32-bit program without any library, so that no 32-bit library is needed: prints `ready` and its
 * pid, waits for input, and ends with 0.
 */
static int call(int number, int one, const void *two, int three)
{
    int result;
    __asm__ volatile("int $0x80" : "=a"(result) : "a"(number), "b"(one), "c"(two), "d"(three) : "memory");
    return result;
}

void _start(void)
{
    char text[32], *at = text + sizeof text;
    int pid = call(20, 0, 0, 0);
    *--at = '\n';
    for (; pid > 0; pid /= 10)
        *--at = '0' + pid % 10;
    static const char word[] = "ready ";
    for (int i = sizeof word - 2; i >= 0; i--)
        *--at = word[i];
    call(4, 1, at, text + sizeof text - at);
    call(3, 0, text, sizeof text);
    call(4, 1, "kept\n", 5);
    call(3, 0, text, sizeof text);
    call(1, 0, 0, 0);
    for (;;)
        ;
}
