# SPDX-License-Identifier: Apache-2.0
# Two hosts on this machine, for scripts that source this: network namespaces joined by a cable.
# Makes them, and clears them away when the script exits; exit code 77 where that is not allowed.
# Sets scratch, a folder for files, and left and right, the namespaces of the hosts. The ranks are
# started by mpirun or, where $by is tcp, by a `weft run` on each host.

skip() {
  echo "skipped: $(basename "$0"): $*"
  exit 77
}
[[ ${by:=mpirun} == tcp ]] || command -v mpirun >/dev/null || skip "mpirun is not installed"
command -v ip >/dev/null || skip "ip is not installed"

left=weft-left-$$ right=weft-right-$$
left_end=wl$$ right_end=wr$$
scratch=$(mktemp -d)
clear_away() {
  ip netns del "$left" 2>/dev/null || true
  ip netns del "$right" 2>/dev/null || true
  rm -rf "$scratch"
}
trap clear_away EXIT

make_hosts() {
  ip netns add "$left" && ip netns add "$right" &&
    ip link add "$left_end" netns "$left" type veth peer name "$right_end" netns "$right" &&
    ip -n "$left" addr add 10.77.0.1/24 dev "$left_end" &&
    ip -n "$right" addr add 10.77.0.2/24 dev "$right_end" &&
    ip -n "$left" link set lo up && ip -n "$right" link set lo up &&
    ip -n "$left" link set "$left_end" up && ip -n "$right" link set "$right_end" up
}
make_hosts >"$scratch/hosts.log" 2>&1 ||
  skip "network namespaces are not allowed here: $(tail -n 1 "$scratch/hosts.log")"

# The agent that mpirun calls in ssh's place: options, the host, and a command for it.
cat >"$scratch/agent" <<END
#!/bin/sh
while [ "\${1#-}" != "\$1" ]; do shift; done
shift
exec ip netns exec $right sh -c "\$*"
END
chmod +x "$scratch/agent"

# Runs a command as four ranks, two a host, for 120 seconds at most.
on_two_hosts() {
  if [[ $by == tcp ]]; then
    on_two_hosts_by_tcp "$@"
    return
  fi
  local net=10.77.0.0/24
  OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 \
    ip netns exec "$left" timeout 120 mpirun --oversubscribe -n 4 \
    --host 10.77.0.1:2,10.77.0.2:2 --mca plm_rsh_agent "$scratch/agent" --mca btl tcp,self \
    --mca btl_tcp_if_include "$net" --mca oob_tcp_if_include "$net" "$@"
}

on_two_hosts_by_tcp() {
  local run=("$weft" run --hosts 2 --rendezvous 10.77.0.1:29500 -n 2 --no-prefix) code=0 second
  ip netns exec "$right" timeout 120 "${run[@]}" --host-rank 1 -- "$@" &
  second=$!
  ip netns exec "$left" timeout 120 "${run[@]}" --host-rank 0 -- "$@" || code=$?
  wait "$second" || code=$?
  return "$code"
}

# Bytes that the first host has received from the second.
across() { ip netns exec "$left" cat "/sys/class/net/$left_end/statistics/rx_bytes"; }
