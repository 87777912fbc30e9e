/* LMDB at work, after its own mtest programs: many small transactions on a mapping that is longer than its
 * file. What it prints depends on nothing but its arguments.
 *   lmdb work DIR FLAGS    puts, deletes, duplicates, cursors, a larger map, all compared with a model
 *   lmdb rows DIR WRITER COUNT    a row in each transaction, its number printed once it is committed
 *   lmdb read DIR WRITER   every row of a writer, whole and without a gap; prints how many
 */
#include <lmdb.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define KEYS 4096
#define MEGABYTE (1 << 20)

static void good(int result, const char *what) {
    if (result != 0) {
        fprintf(stderr, "%s: %s\n", what, mdb_strerror(result));
        exit(1);
    }
}
#define GOOD(call) good((call), #call)

static void need(int condition, const char *what) {
    if (!condition) {
        fprintf(stderr, "wrong: %s\n", what);
        exit(1);
    }
}
#define NEED(condition) need((condition), #condition)

static MDB_env *open_env(const char *dir, unsigned flags, size_t megabytes) {
    MDB_env *env;
    GOOD(mdb_env_create(&env));
    GOOD(mdb_env_set_mapsize(env, megabytes * MEGABYTE));
    GOOD(mdb_env_set_maxdbs(env, 4));
    GOOD(mdb_env_open(env, dir, flags, 0644));
    return env;
}

static uint64_t state = 1;
static unsigned drawn(unsigned below) { /* Knuth's constants: the same numbers everywhere */
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (unsigned)(state >> 33) % below;
}

/* A value's bytes follow from its key and version: a page that is another's shows. */
static size_t value_of(unsigned key, unsigned version, unsigned char *to) {
    size_t len = 8 + (key * 7 + version * 131) % (version % 16 ? 300 : 9000);
    memcpy(to, &key, 4);
    memcpy(to + 4, &version, 4);
    for (size_t at = 8; at < len; at++)
        to[at] = (unsigned char)(key + version + at);
    return len;
}

static unsigned model[KEYS]; /* the version that a key has, 0 for none */

static void compare(MDB_env *env) {
    MDB_dbi dbi, twice;
    static unsigned char expected[10000];
    MDB_txn *txn;
    MDB_cursor *cursor;
    MDB_val key, value;
    unsigned there = 0, known = 0;
    GOOD(mdb_txn_begin(env, NULL, MDB_RDONLY, &txn));
    GOOD(mdb_dbi_open(txn, "main", 0, &dbi));
    GOOD(mdb_dbi_open(txn, "twice", MDB_DUPSORT, &twice));
    GOOD(mdb_cursor_open(txn, dbi, &cursor));
    while (mdb_cursor_get(cursor, &key, &value, MDB_NEXT) == 0) {
        unsigned number;
        NEED(key.mv_size == 4);
        memcpy(&number, key.mv_data, 4);
        NEED(number < KEYS && model[number] != 0);
        NEED(value.mv_size == value_of(number, model[number], expected));
        NEED(memcmp(value.mv_data, expected, value.mv_size) == 0);
        there++;
    }
    mdb_cursor_close(cursor);
    for (unsigned number = 0; number < KEYS; number++)
        known += model[number] != 0;
    NEED(there == known);
    MDB_stat stat;
    GOOD(mdb_stat(txn, twice, &stat));
    printf("%u keys, %zu duplicates\n", there, stat.ms_entries);
    mdb_txn_abort(txn);
}

static void work(const char *dir, unsigned flags) {
    static unsigned char bytes[10000];
    MDB_env *env = open_env(dir, flags, 4);
    MDB_txn *txn;
    MDB_dbi dbi, twice;
    GOOD(mdb_txn_begin(env, NULL, 0, &txn));
    GOOD(mdb_dbi_open(txn, "main", MDB_CREATE, &dbi));
    GOOD(mdb_dbi_open(txn, "twice", MDB_CREATE | MDB_DUPSORT, &twice));
    GOOD(mdb_txn_commit(txn));
    for (unsigned turn = 1; turn <= 3000; turn++) {
        unsigned before[8], keys[8], count = 1 + drawn(8);
        GOOD(mdb_txn_begin(env, NULL, 0, &txn));
        for (unsigned n = 0; n < count; n++) {
            unsigned number = keys[n] = drawn(KEYS);
            MDB_val key = {4, &number}, value = {0, bytes};
            before[n] = model[number];
            if (drawn(4) == 0) {
                int result = mdb_del(txn, dbi, &key, NULL);
                NEED(result == (model[number] ? 0 : MDB_NOTFOUND));
                model[number] = 0;
            } else {
                value.mv_size = value_of(number, turn, bytes);
                GOOD(mdb_put(txn, dbi, &key, &value, 0));
                model[number] = turn;
            }
            unsigned few = drawn(16), other = drawn(2000);
            MDB_val same = {4, &few}, duplicate = {4, &other};
            if (drawn(3) != 0) {
                mdb_put(txn, twice, &same, &duplicate, MDB_NODUPDATA);
            } else {
                mdb_del(txn, twice, &same, &duplicate);
            }
        }
        if (drawn(10) == 0) {
            mdb_txn_abort(txn);
            while (count-- > 0)
                model[keys[count]] = before[count];
        } else {
            GOOD(mdb_txn_commit(txn));
        }
        if (turn == 1000)
            GOOD(mdb_env_set_mapsize(env, 512 * (size_t)MEGABYTE));
        if (turn % 500 == 0)
            compare(env);
    }
    mdb_env_close(env);
    env = open_env(dir, flags, 64);
    compare(env);
    GOOD(mdb_env_sync(env, 1));
    mdb_env_close(env);
}

static void rows(const char *dir, unsigned writer, unsigned count) {
    MDB_env *env = open_env(dir, 0, 1024);
    static unsigned char bytes[10000];
    for (unsigned n = 0; n < count; n++) {
        MDB_txn *txn;
        MDB_dbi dbi;
        uint64_t row = (uint64_t)writer << 32 | n;
        MDB_val key = {8, &row}, value = {value_of(writer, n, bytes), bytes};
        GOOD(mdb_txn_begin(env, NULL, 0, &txn));
        GOOD(mdb_dbi_open(txn, "rows", MDB_CREATE | MDB_INTEGERKEY, &dbi));
        GOOD(mdb_put(txn, dbi, &key, &value, 0));
        GOOD(mdb_txn_commit(txn));
        printf("%u\n", n);
        fflush(stdout);
    }
    mdb_env_close(env);
}

static void rows_of(const char *dir, unsigned writer) {
    MDB_env *env = open_env(dir, 0, 1024);
    static unsigned char expected[10000];
    MDB_txn *txn;
    MDB_dbi dbi;
    unsigned n = 0;
    GOOD(mdb_txn_begin(env, NULL, MDB_RDONLY, &txn));
    GOOD(mdb_dbi_open(txn, "rows", MDB_INTEGERKEY, &dbi));
    for (;; n++) {
        uint64_t row = (uint64_t)writer << 32 | n;
        MDB_val key = {8, &row}, value;
        int result = mdb_get(txn, dbi, &key, &value);
        if (result == MDB_NOTFOUND)
            break;
        good(result, "mdb_get");
        NEED(value.mv_size == value_of(writer, n, expected));
        NEED(memcmp(value.mv_data, expected, value.mv_size) == 0);
    }
    printf("%u\n", n);
    mdb_txn_abort(txn);
    mdb_env_close(env);
}

int main(int count, char **arguments) {
    const char *task = count > 3 ? arguments[1] : "";
    unsigned number = count > 3 ? (unsigned)strtoul(arguments[3], NULL, 0) : 0;
    if (strcmp(task, "work") == 0)
        work(arguments[2], number);
    else if (strcmp(task, "rows") == 0 && count > 4)
        rows(arguments[2], number, (unsigned)strtoul(arguments[4], NULL, 0));
    else if (strcmp(task, "read") == 0)
        rows_of(arguments[2], number);
    else
        return 2;
    return 0;
}
