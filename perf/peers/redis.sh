#!/usr/bin/env bash
# A Redis server as a peer for `corelane perf peer redis`: append-only file, loopback, on one CPU.
#   perf/peers/redis.sh start [PORT] [always|everysec]     data and process id under ./peer/redis
#   perf/peers/redis.sh stop
set -euo pipefail

folder=peer/redis
pid_file=$folder/redis.pid

case "${1:-}" in
start)
  port=${2:-7001}
  sync=${3:-always}
  if ! command -v redis-server >/dev/null; then
    apt-get update -qq
    # The service that the package would start is not wanted.
    RUNLEVEL=1 apt-get install -y -qq redis-server redis-tools
  fi
  mkdir -p "$folder"
  cpu=$(($(nproc --all) - 1))
  taskset -c "$cpu" redis-server --port "$port" --bind 127.0.0.1 --save "" --appendonly yes --appendfsync "$sync" \
    --dir "$folder" --logfile redis.log &
  echo $! >"$pid_file"
  for _ in $(seq 100); do
    redis-cli -p "$port" ping >/dev/null 2>&1 && exit 0
    sleep 0.1
  done
  echo "redis-server does not answer on port $port" >&2
  exit 1
  ;;
stop)
  pid=$(cat "$pid_file")
  kill "$pid"
  while kill -0 "$pid" 2>/dev/null; do sleep 0.05; done
  rm -r "$folder"
  ;;
*)
  sed -n '2,4s/^# //p' "$0" >&2
  exit 2
  ;;
esac
