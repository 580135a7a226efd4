/* The allocator gives freed pages back ten minutes after they were freed, not after one second: a step of a large model
   is longer than that, and would fault in every buffer again. MIMALLOC_PURGE_DELAY in the environment comes first. */

#include <mimalloc.h>

#ifdef __APPLE__
__attribute__((constructor))
#else
__attribute__((constructor(101)))
#endif
static void keep_pages(void) {
  mi_option_set_default(mi_option_purge_delay, 10 * 60 * 1000);
}
