package stacks

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"time"

	"talos-proxmox/internal/problem"
	"talos-proxmox/internal/request"
	"talos-proxmox/internal/vmdiff"
)

// checkMaintenance reports machines that the plan interrupts outside of their cluster's maintenance windows. Forced
// changes repair a cluster, and talosops refuses forced upgrades.
func (d *deployment) checkMaintenance(found *problem.List) {
	if os.Getenv(request.ForceVariable) != "" {
		return
	}

	interrupted := map[string][]string{}

	for _, c := range vmdiff.Changes(d.plan, d.lastRun.machines) {
		if effect := c.Effect(); effect == vmdiff.Upgrade || effect == vmdiff.Restart || effect == vmdiff.Replace {
			interrupted[c.Machine.Cluster] = append(interrupted[c.Machine.Cluster], c.Machine.Name)
		}
	}

	for i, cluster := range d.plan.Clusters {
		refusal := cluster.Maintenance.Refusal(time.Now())
		if refusal == "" || len(interrupted[cluster.Name]) == 0 {
			continue
		}

		path, names := fmt.Sprintf("clusters[%d].maintenance.windows", i), vmdiff.JoinNames(interrupted[cluster.Name])
		if d.preview {
			found.Warn(path, nil, "up does not interrupt %s now: %s", names, refusal)
		} else {
			found.Add(path, nil, "do not allow to interrupt %s now: %s", names, refusal)
		}
	}
}

// firstWord matches a command that begins with a plain word, after assignments of plain values.
var firstWord = regexp.MustCompile(`^\s*(?:[A-Za-z_]\w*=[\w./:@%+,-]*\s+)*([\w./:@%+,-]+)(?:[\s;&|]|$)`)

// commandProblem returns why this computer cannot run a command; empty = it can, or that is not known. It runs nothing
// of the command.
func commandProblem(ctx context.Context, command string) string {
	parse := exec.CommandContext(ctx, "sh", "-n")
	parse.Stdin = strings.NewReader(command)

	if output, err := parse.CombinedOutput(); err != nil {
		return fmt.Sprintf("is not a command of sh (%s); correct it", strings.TrimSpace(string(output)))
	}

	word := firstWord.FindStringSubmatch(command)
	if word == nil {
		return ""
	}

	if strings.Contains(word[1], "/") {
		if _, err := exec.LookPath(word[1]); err == nil {
			return ""
		}

		return fmt.Sprintf("begins with %s, which is not there, or not executable; write its path from the folder of Pulumi.yaml, and "+
			"chmod +x it", word[1])
	}

	//nolint:gosec // it is an argument, of which sh says whether it is a program or its own
	if exec.CommandContext(ctx, "sh", "-c", `command -v -- "$1"`, "sh", word[1]).Run() == nil {
		return ""
	}

	return fmt.Sprintf("begins with %s, which is not on PATH of this computer; install it, or write its path", word[1])
}

// checkMaintenanceCommands reports commands before and after a maintenance that this computer cannot run. Another one
// may run up.
func (d *deployment) checkMaintenanceCommands(ctx context.Context) (found problem.List) {
	for i, cluster := range d.plan.Clusters {
		if cluster.Maintenance == nil {
			continue
		}

		for _, of := range []struct{ key, command string }{
			{"before", cluster.Maintenance.Before}, {"after", cluster.Maintenance.After},
		} {
			path, wrong := fmt.Sprintf("clusters[%d].maintenance.%s", i, of.key), ""
			if of.command != "" {
				wrong = commandProblem(ctx, of.command)
			}

			switch {
			case wrong == "":
			case d.preview:
				found.Warn(path, of.command, "%s, or up refuses it", wrong)
			default:
				found.Add(path, of.command, "%s", wrong)
			}
		}
	}

	return found
}
