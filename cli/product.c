/* product: the matrix product as a workload: "matmul:N" or "matmul:MxNxK". */
#include "cli.h"

#include <stdlib.h>
#include <string.h>

#define PRODUCT_MAX 16384

bool cli_is_product(const char *text) { return strncmp(text, "matmul:", strlen("matmul:")) == 0; }

/* A whole number from 1 to PRODUCT_MAX that ends at `stop` or at the end of the text; 0: there is
 * none. */
static int64_t parse_size(const char **at, char stop) {
    char *end = NULL;
    long long value = **at >= '0' && **at <= '9' ? strtoll(*at, &end, 10) : 0;
    if (!end || (*end && *end != stop) || value < 1 || value > PRODUCT_MAX) return 0;
    *at = *end ? end + 1 : end;
    return value;
}

int cli_parse_product(const char *text, bool square, cli_product *out) {
    const char *at = text + strlen("matmul:");
    const char stop = square ? '\0' : 'x';
    const int64_t m = parse_size(&at, stop);
    const bool three = !square && m > 0 && at[-1] == 'x';
    const int64_t n = three ? parse_size(&at, stop) : m, k = three && n > 0 && at[-1] == 'x' ? parse_size(&at, '\0') : three ? 0 : m;
    if (m > 0 && n > 0 && k > 0 && !*at) {
        *out = (cli_product){m, n, k};
        return CLI_DONE;
    }
    if (square) cli_say("%s: the size must be a whole number from 1 to %d", text, PRODUCT_MAX);
    else cli_say("%s: matmul:N or matmul:MxNxK, of whole numbers from 1 to %d", text, PRODUCT_MAX);
    return CLI_USAGE;
}

/* The product of two parameters goes into a state; the loss is one number of the product before. So
 * a step sends nothing and reads back 4 bytes. The time measured is one submission of the product
 * until it is done. */
tg_tensor cli_build_product(tg_graph *g, void *user) {
    const cli_product *p = user;
    tg_tensor a = tg_param(g, "a", TG_SHAPE(p->m, p->k), .init = tg_init_uniform(0.5), .frozen = TG_YES);
    tg_tensor b = tg_param(g, "b", TG_SHAPE(p->k, p->n), .init = tg_init_uniform(0.5), .frozen = TG_YES);
    tg_tensor c = tg_state(g, "c", TG_SHAPE(p->m, p->n), TG_F32, 0);
    tg_writeback(c, tg_matmul(a, b));
    return tg_sum_all(tg_narrow(tg_narrow(c, 0, p->m - 1, 1), 1, p->n - 1, 1));
}
