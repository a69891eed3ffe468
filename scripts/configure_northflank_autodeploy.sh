#!/usr/bin/env bash
# Lets Northflank build docker/proxy.Dockerfile and deploy it at each push to a branch: makes the combined service, or brings the one
# that is there to what is written here. Run again, it changes nothing more.
#   NORTHFLANK_API_TOKEN=… scripts/configure_northflank_autodeploy.sh --project ID --service NAME --repository URL
#       [--branch main] [--plan PLAN] [--port 8080] [--dry-run]
# The NCU_SERVICE_DEPLOY_* variables that are set here become the service's, beside those that it has. --dry-run prints the
# requests that would change something, without secrets, and sends none of them. --plan, Northflank's name of a deployment plan, is
# needed to make the service. Exit status: 0 done, 1 Northflank refused or was not to be reached, 2 something is missing.
source "$(dirname "$0")/lib.sh"
exec python3 "$root/scripts/deploy.d/northflank.py" "$@"
