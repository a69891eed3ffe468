# How the GPU host is reached; sourced by the proxy and by scripts/update_*.sh, never run. Needs bash and the ssh client.
# docs/update-service.md lists the variables.

# Writes what ssh needs into a folder of its own and sets `ssh_config`. Neither the key nor a host stands on a command line.
reach_host() {
  local folder=$1 variable user_default=${2:-}
  host=${NCU_SERVICE_DEPLOY_HOST:-}
  user=${NCU_SERVICE_DEPLOY_USER:-$user_default}
  local port=${NCU_SERVICE_DEPLOY_SSH_PORT:-22}
  [ -n "$host" ] || die "NCU_SERVICE_DEPLOY_HOST is not set: it names the GPU host"
  [ -n "$user" ] || die "NCU_SERVICE_DEPLOY_USER is not set: it names the user of the GPU host whose service this is"
  # They become lines of a file.
  [[ $host =~ ^[A-Za-z0-9][A-Za-z0-9.:_-]*$ ]] || die "NCU_SERVICE_DEPLOY_HOST is no host name or address"
  [[ $user =~ ^[A-Za-z_][A-Za-z0-9._-]*$ ]] || die "NCU_SERVICE_DEPLOY_USER is no user's name"
  is_port "$port" || die "NCU_SERVICE_DEPLOY_SSH_PORT=$port is no port"
  for variable in SSH_KEY:"the private key that the GPU host knows" KNOWN_HOSTS:"the line of known_hosts for the GPU host, from ssh-keyscan and compared with the host's own"; do
    write_secret "NCU_SERVICE_DEPLOY_${variable%%:*}" "${variable#*:}" "$folder/${variable%%:*}"
  done
  ssh_config=$folder/config
  cat > "$ssh_config" <<CONFIG
Host gpu-host
  HostName $host
  Port $port
  User $user
  IdentityFile $folder/SSH_KEY
  IdentitiesOnly yes
  UserKnownHostsFile $folder/KNOWN_HOSTS
  GlobalKnownHostsFile /dev/null
  HostKeyAlias $(alias_of "$host" "$port")
  StrictHostKeyChecking yes
  UpdateHostKeys no
  BatchMode yes
  ConnectTimeout 10
  ServerAliveInterval 5
  ServerAliveCountMax 3
  ExitOnForwardFailure yes
  LogLevel ERROR
CONFIG
}

is_port() { [[ $1 =~ ^[0-9]{1,5}$ ]] && [ "$1" -ge 1 ] && [ "$1" -le 65535 ]; }

# As known_hosts spells it.
alias_of() { if [ "$2" = 22 ]; then echo "$1"; else echo "[$1]:$2"; fi; }

# A secret comes as text in NAME or as a file that NAME_FILE names. It leaves the environment, so no child of this process has it.
write_secret() {
  local name=$1 what=$2 file=$3 named=$1_FILE
  if [ -n "${!name:-}" ]; then
    printf '%s\n' "${!name}" > "$file"
  elif [ -n "${!named:-}" ]; then
    cat "${!named}" > "$file" 2>/dev/null || die "$named=${!named} cannot be read"
  else
    die "$name is not set: it holds $what; $named may name a file instead"
  fi
  chmod 600 "$file"
  unset "$name"
}

# Runs a command of the remote shell. Exit status 255 is the connection's.
on_host() { ssh -F "$ssh_config" gpu-host "$@"; }

# Carries a release to the host, unless it is there, and lets its own program install it; what follows is given to that.
deploy() {
  local release=$1 name status=0; shift
  name=$(sed -n 's/^name=//p' "$release/release")
  [[ $name =~ ^[A-Za-z0-9][A-Za-z0-9._-]*$ ]] || die "$release is no release"
  on_host "[ -f \"\$HOME/ncu-service/releases/$name/release\" ]" || status=$?
  case $status in
    0)
      on_host "folder=\$HOME/ncu-service/releases/$name; exec \"\$folder/deploy/host\" install \"\$folder\" $*"
      ;;
    1)
      say "carrying release $name to $user@$host"
      # What did not arrive whole is removed there, and is no release.
      tar -C "$release" -c . | gzip -1 | on_host "set -e; umask 077; mkdir -p \"\$HOME/ncu-service/incoming\"
        folder=\$(mktemp -d \"\$HOME/ncu-service/incoming/XXXXXXXX\"); trap 'rm -rf \"\$folder\"' EXIT
        tar -xzp -C \"\$folder\"; \"\$folder/deploy/host\" install \"\$folder\" $*"
      ;;
    *) return "$status" ;;
  esac
}

# What ssh says when it never will: to try again would change nothing.
is_refusal() { grep -qE 'Host key verification failed|REMOTE HOST IDENTIFICATION|Permission denied|No .* host key is known' "$1"; }
