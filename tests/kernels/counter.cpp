// SPDX-License-Identifier: Apache-2.0
extern "C" {

int last_count = 0;

int next_count() { return ++last_count; }
}
