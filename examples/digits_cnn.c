/* digits-cnn: a small convolutional network learns to read handwritten digits (MNIST, LeCun, Cortes
 * & Burges).
 *
 * Two convolutions of 5 x 5, each with ReLU and a pooling that halves the image, then one matrix.
 * In training, dropout hides a quarter of the matrix's inputs. Each image is moved by up to two
 * pixels when it is drawn, so no two steps see the same image.
 *
 *   image [B, 1, 28, 28] -> 12 channels -> [B, 12, 14, 14] -> 24 channels -> [B, 24, 7, 7]
 *   -> dropout -> logits [B, 10]
 *
 * At the end it reads the 10,000 test digits, which are by other writers. */
#include "data.h"
#include "examples.h"

#include <stdlib.h>
#include <string.h>

enum { BATCH = 64, TEST_BATCH = 200, SIDE = 28, PIXELS = SIDE * SIDE, DIGITS = 10, STEPS = 1500, SHIFT = 2 };

/* ---------------------------------------------------------------- the model */

/* image [B, 1, 28, 28] -> logits [B, 10]. */
static tg_tensor network(tg_graph *g, tg_tensor image, int64_t batch, double dropout) {
    tg_conv first = tg_nn_conv2d(g, "conv1", 1, 12, 5, 5, .padding = tg_padding_same());
    tg_conv second = tg_nn_conv2d(g, "conv2", 12, 24, 5, 5, .padding = tg_padding_same());
    tg_linear output = tg_nn_linear(g, "output", 24 * 7 * 7, DIGITS);
    tg_tensor h = tg_max_pool2d(tg_relu(tg_nn_conv2d_fwd(first, image)), 2, 2);
    h = tg_max_pool2d(tg_relu(tg_nn_conv2d_fwd(second, h)), 2, 2);
    return tg_nn_linear_fwd(output, tg_dropout(tg_reshape(h, TG_SHAPE(batch, 24 * 7 * 7)), dropout));
}

tg_tensor digits_cnn_loss(tg_graph *g, void *user) {
    const int64_t rows = user != NULL ? *(const int64_t *)user : BATCH;
    tg_tensor image = tg_input(g, "image", TG_SHAPE(rows, 1, SIDE, SIDE), TG_F32);
    tg_tensor digit = tg_input(g, "digit", TG_SHAPE(rows), TG_I32);
    return tg_nn_cross_entropy(network(g, image, rows, 0.25), digit, -1);
}

/* The likeliest digit, i32 [TEST_BATCH]. */
tg_tensor digits_cnn_forward(tg_graph *g, void *user) {
    (void)user;
    tg_tensor image = tg_input(g, "image", TG_SHAPE(TEST_BATCH, 1, SIDE, SIDE), TG_F32);
    return tg_argmax(network(g, image, TEST_BATCH, 0), -1);
}

tg_optimizer digits_cnn_optimizer(void) { return tg_adam(.lr = tg_lr_one_cycle(0.004, STEPS), .weight_decay = 0.01); }

/* ---------------------------------------------------------------- the data */

/* IDX files: 4 bytes of magic number, 4 for each size, highest byte first, then a byte for each
 * pixel or label. */
typedef struct digit_set {
    unsigned char *image_file, *label_file;
    const unsigned char *images, *labels;
    int64_t count;
} digit_set;
static digit_set training, testing;

static int64_t big_endian(const unsigned char *at) {
    return ((int64_t)at[0] << 24) | ((int64_t)at[1] << 16) | ((int64_t)at[2] << 8) | at[3];
}

static const char *load_set(const char *folder, const char *images, const char *labels, digit_set *set) {
    const char *problem = NULL;
    size_t image_bytes = 0, label_bytes = 0;
    if (set->count > 0) return NULL;
    unsigned char *image_file = tg_example_read(folder, images, &image_bytes, &problem);
    unsigned char *label_file = image_file != NULL ? tg_example_read(folder, labels, &label_bytes, &problem) : NULL;
    bool good = label_file != NULL;
    if (good) {
        const int64_t count = image_bytes >= 16 ? big_endian(image_file + 4) : 0;
        good = count >= BATCH && image_bytes == 16 + (size_t)count * PIXELS && label_bytes == 8 + (size_t)count &&
               big_endian(image_file) == 0x803 && big_endian(label_file) == 0x801 && big_endian(image_file + 8) == SIDE &&
               big_endian(image_file + 12) == SIDE;
        for (int64_t i = 0; good && i < count; i++) good = label_file[8 + i] < DIGITS;
        if (good) *set = (digit_set){image_file, label_file, image_file + 16, label_file + 8, count};
        else problem = "the data's files are not those of MNIST: IDX, 28 x 28 pixels, as many labels as images";
    }
    if (good) return NULL;
    free(image_file);
    free(label_file);
    return problem;
}

const char *digits_cnn_load(const char *folder) {
    const char *problem = load_set(folder, "train-images-idx3-ubyte", "train-labels-idx1-ubyte", &training);
    return problem != NULL ? problem : load_set(folder, "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte", &testing);
}

/* Pixels from 0 to 1, moved by (dx, dy), black where nothing comes from. */
static void draw(const unsigned char *pixels, int dx, int dy, float *image) {
    for (int y = 0; y < SIDE; y++)
        for (int x = 0; x < SIDE; x++) {
            int from_x = x - dx, from_y = y - dy;
            bool inside = from_x >= 0 && from_x < SIDE && from_y >= 0 && from_y < SIDE;
            image[y * SIDE + x] = inside ? (float)pixels[from_y * SIDE + from_x] / 255.0F : 0.0F;
        }
}

void digits_cnn_batch(uint64_t seed, int64_t t, int64_t rows, void *const *arrays) {
    float *images = arrays[0];
    int32_t *digits = arrays[1];
    for (int64_t row = 0; row < rows; row++) {
        uint64_t bits = tg_example_random(seed, (uint64_t)t, (uint64_t)row);
        uint64_t at = (bits >> 16) % (uint64_t)training.count;
        int dx = (int)(bits % (2 * SHIFT + 1)) - SHIFT, dy = (int)(bits / 8 % (2 * SHIFT + 1)) - SHIFT;
        draw(training.images + at * PIXELS, dx, dy, images + (size_t)row * PIXELS);
        digits[row] = training.labels[at];
    }
}

/* ---------------------------------------------------------------- accuracy on the digits of other
 * writers */

static void print_mistake(FILE *out, const unsigned char *pixels, int digit, int read) {
    static const char shades[] = " .:*#";
    fprintf(out, "  a %d, read as %d:\n", digit, read);
    for (int y = 4; y < SIDE - 4; y += 2) {
        fputs("    ", out);
        for (int x = 3; x < SIDE - 3; x++) fputc(shades[(pixels[y * SIDE + x] + pixels[(y + 1) * SIDE + x]) / 103], out);
        fputc('\n', out);
    }
}

tg_status digits_cnn_evaluate(tg_model *forward, uint64_t seed, FILE *out, double *score) {
    (void)seed;
    static float images[TEST_BATCH * PIXELS];
    int32_t read[TEST_BATCH];
    tg_feed feed = tg_feed_f32("image", images, TEST_BATCH * PIXELS);
    int64_t right = 0, seen = 0;
    int shown = 0;
    for (int64_t first = 0; first < testing.count; first += TEST_BATCH) {
        const int64_t rows = testing.count - first < TEST_BATCH ? testing.count - first : TEST_BATCH;
        for (int64_t i = 0; i < rows; i++) draw(testing.images + (first + i) * PIXELS, 0, 0, images + (size_t)i * PIXELS);
        tg_status status = tg_run(forward, &feed, 1, read, TEST_BATCH);
        if (status != TG_OK) return status;
        for (int64_t i = 0; i < rows; i++) {
            bool correct = read[i] == testing.labels[first + i];
            right += correct;
            if (!correct && out != NULL && shown++ < 2)
                print_mistake(out, testing.images + (first + i) * PIXELS, testing.labels[first + i], read[i]);
        }
        seen += rows;
    }
    *score = (double)right / (double)seen;
    if (out != NULL)
        fprintf(out, "digits of other writers read right: %lld of %lld (%.2f %%)\n", (long long)right, (long long)seen, 100 * *score);
    return TG_OK;
}

/* ---------------------------------------------------------------- as a program of its own */

#ifdef TG_EXAMPLE_MAIN
static int fail(const tg_context *ctx) {
    tg_site site = tg_error_site(ctx);
    fprintf(stderr, "%s:%d: %s\n", site.file, site.line, tg_error_message(ctx));
    return 1;
}

int main(int argc, char **argv) {
    const char *problem = digits_cnn_load(argc > 1 ? argv[1] : NULL);
    if (problem != NULL) {
        fprintf(stderr, "%s\n", problem);
        return 1;
    }
    tg_context *ctx = tg_context_create(NULL);
    if (ctx == NULL) return 1;
    tg_compile_options options = {.optimizer = digits_cnn_optimizer(), .seed = 1};
    tg_model *model = tg_compile(ctx, digits_cnn_loss, NULL, &options);
    tg_model *forward = model != NULL ? tg_compile_sibling(model, digits_cnn_forward, NULL) : NULL;
    if (forward == NULL) return fail(ctx);

    static float images[BATCH * PIXELS];
    int32_t digits[BATCH];
    float loss = 0;
    void *arrays[] = {images, digits};
    tg_feed feeds[] = {tg_feed_f32("image", images, BATCH * PIXELS), tg_feed_i32("digit", digits, BATCH)};
    for (int t = 1; t <= STEPS; t++) {
        digits_cnn_batch(options.seed, t, BATCH, arrays);
        if (tg_step(model, feeds, 2, &loss) != TG_OK) return fail(ctx);
        if (t % 100 == 0) printf("step %4d  loss %.6f\n", t, (double)loss);
    }

    double accuracy = 0;
    if (digits_cnn_evaluate(forward, options.seed, stdout, &accuracy) != TG_OK) return fail(ctx);
    tg_model_destroy(model); /* and its sibling */
    tg_context_destroy(ctx);
    return 0;
}
#endif
