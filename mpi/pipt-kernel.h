/* A kernel of your own for pipt: compile it into a shared library, and name it in a batch file.
 *
 *     cc -O2 -shared -fPIC -o mean.so mean.c
 *     b = User a kernel=./mean.so:mean3 edge=reflect
 *
 * It is called for rectangles of pixels, by several threads at once and in processes of their own: what it gives for a
 * pixel depends on the pixel's window alone, and it keeps nothing between two calls. Every rank opens the library by
 * itself, so the file has to be there on all nodes.
 */
#ifndef PIPT_KERNEL_H
#define PIPT_KERNEL_H

#include <stdint.h>

#define PIPT_KERNEL_VERSION 1

/* Types of samples. */
enum {
    PIPT_ANY = -1, /* as the image has them; of a result, as what is taken */
    PIPT_U8 = 0, PIPT_U16 = 1, PIPT_U32 = 2, PIPT_U64 = 3,
    PIPT_I8 = 4, PIPT_I16 = 5, PIPT_I32 = 6, PIPT_I64 = 7,
    PIPT_F32 = 8, PIPT_F64 = 9
};

/* Places in `shape`. */
enum {
    PIPT_SHAPE_VERSION = 0,
    PIPT_WIDTH = 1, PIPT_HEIGHT = 2,           /* pixels that are to be computed */
    PIPT_HALO_ACROSS = 3, PIPT_HALO_DOWN = 4,  /* pixels around them, on each side */
    PIPT_TYPE = 5,                             /* of the samples that are given */
    PIPT_BAND = 6,                             /* from 0 */
    PIPT_X = 7, PIPT_Y = 8,                    /* of the first pixel, within the image */
    PIPT_IMAGE_WIDTH = 9, PIPT_IMAGE_HEIGHT = 10,
    PIPT_PARAMETERS = 11                       /* how many there are */
};

/* Computes a rectangle; gives 0, or a number of its own if it cannot, which ends the work.
 *
 * samples    (width + 2 * across) * (height + 2 * down), row by row. Beyond the edges of the image stands what edge=
 *            says. What is not there is NaN among floats, and else 0.
 * there      of each of these whether it is there: 1 or 0.
 * out        width * height for each band that is made, band after band, row by row; all 0 before.
 * out_there  as many: 1 where there is data in the middle of the window. Set it to 0 where the kernel has no result
 *            (or to 1, with fill=yes, where it has one).
 * shape      as above.
 * parameters the numbers of parameters=.
 */
typedef int32_t (*pipt_run)(const void *samples, const uint8_t *there, void *out, uint8_t *out_there,
                            const int64_t *shape, const double *parameters);

/* What a library exports: `const struct pipt_kernel mean3 = { ... };` */
struct pipt_kernel {
    uint32_t version;      /* PIPT_KERNEL_VERSION */
    uint32_t halo_across;  /* columns that it looks at on each side: at most 1024 */
    uint32_t halo_down;    /* rows above and below: at most 1024 */
    uint32_t bands;        /* that it makes of one: from 1 to 256 */
    int32_t takes;         /* type of the samples that it wants: others are converted to it */
    int32_t gives;         /* type of the samples that it gives */
    pipt_run run;
};

#endif
