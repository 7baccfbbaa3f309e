/* A plugin of QEMU: how many instructions run between two functions, and hashes of where they are
and of the addresses that they read and write. So two draws can be compared. */

#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* From qemu-plugin.h, version 1 of the interface. */
typedef uint64_t qemu_plugin_id_t;
typedef struct qemu_info_t qemu_info_t;
typedef uint32_t qemu_plugin_meminfo_t;
struct qemu_plugin_tb;
struct qemu_plugin_insn;
enum { NO_REGISTERS = 0, READ_AND_WRITE = 3 };
size_t qemu_plugin_tb_n_insns(const struct qemu_plugin_tb *tb);
struct qemu_plugin_insn *qemu_plugin_tb_get_insn(const struct qemu_plugin_tb *tb, size_t index);
uint64_t qemu_plugin_insn_vaddr(const struct qemu_plugin_insn *insn);
void qemu_plugin_register_vcpu_tb_trans_cb(qemu_plugin_id_t id,
                                           void (*callback)(qemu_plugin_id_t,
                                                            struct qemu_plugin_tb *));
void qemu_plugin_register_vcpu_insn_exec_cb(struct qemu_plugin_insn *insn,
                                            void (*callback)(unsigned int, void *), int flags,
                                            void *data);
void qemu_plugin_register_vcpu_mem_cb(struct qemu_plugin_insn *insn,
                                      void (*callback)(unsigned int, qemu_plugin_meminfo_t,
                                                       uint64_t, void *),
                                      int flags, int access, void *data);
void qemu_plugin_outs(const char *text);
extern int qemu_plugin_version;
int qemu_plugin_version = 1;

static uint64_t begin, end, count, where, addresses;
static int active;

static uint64_t mixed(uint64_t hash, uint64_t number) {
  hash ^= number;
  hash *= UINT64_C(0xBF58476D1CE4E5B9);
  return hash ^ hash >> 29;
}

static void executed(unsigned int cpu, void *data) {
  uint64_t address = (uint64_t)(uintptr_t)data;
  (void)cpu;
  if (address == begin) {
    active = 1;
    count = where = addresses = 0;
  } else if (address == end && active) {
    char line[120];
    active = 0;
    snprintf(line, sizeof line, "trace %" PRIu64 " %016" PRIx64 " %016" PRIx64 "\n", count, where,
             addresses);
    qemu_plugin_outs(line);
  } else if (active) {
    count++;
    where = mixed(where, address);
  }
}

static void accessed(unsigned int cpu, qemu_plugin_meminfo_t info, uint64_t address, void *data) {
  (void)cpu, (void)info, (void)data;
  if (active) addresses = mixed(addresses, address);
}

static void translated(qemu_plugin_id_t id, struct qemu_plugin_tb *tb) {
  size_t i, n = qemu_plugin_tb_n_insns(tb);
  (void)id;
  for (i = 0; i < n; i++) {
    struct qemu_plugin_insn *insn = qemu_plugin_tb_get_insn(tb, i);
    void *address = (void *)(uintptr_t)qemu_plugin_insn_vaddr(insn);
    qemu_plugin_register_vcpu_insn_exec_cb(insn, executed, NO_REGISTERS, address);
    qemu_plugin_register_vcpu_mem_cb(insn, accessed, NO_REGISTERS, READ_AND_WRITE, NULL);
  }
}

int qemu_plugin_install(qemu_plugin_id_t id, const qemu_info_t *info, int argc, char **argv);
int qemu_plugin_install(qemu_plugin_id_t id, const qemu_info_t *info, int argc, char **argv) {
  int i;
  (void)info;
  for (i = 0; i < argc; i++) {
    if (strncmp(argv[i], "begin=", 6) == 0) begin = strtoull(argv[i] + 6, NULL, 0);
    if (strncmp(argv[i], "end=", 4) == 0) end = strtoull(argv[i] + 4, NULL, 0);
  }
  qemu_plugin_register_vcpu_tb_trans_cb(id, translated);
  return 0;
}
