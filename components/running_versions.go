package components

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/pulumi/pulumi-command/sdk/go/command/local"
	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"

	"talos-proxmox/internal/request"
	"talos-proxmox/internal/talos"
	"talos-proxmox/internal/talosopsexec"
)

// runningTimeout limits the query of nodes that do not run what is planned. The last report of a node that does not
// answer stays valid.
const runningTimeout = "5s"

// queryRunningVersions returns what the nodes run, as JSON of [talos.Running], as the health gate reported it. Nodes
// that did not run what was planned are queried again, also in previews: they may have been upgraded since, which no
// resource shows.
func (c *TalosCluster) queryRunningVersions(ctx *pulumi.Context, name string, req request.Wait) pulumi.StringOutput {
	planned := req.Planned()
	c.plannedVersions = planned
	versions := pulumi.All(
		c.gate.Stdout, c.nodesTalosconfig, c.Kubeconfig,
	).ApplyT(func(values []any) (pulumi.StringOutput, error) {
		printed := values[0].(string)
		if len(parseRunning(printed).Differences(planned)) == 0 {
			return pulumi.String(printed).ToStringOutput(), nil
		}

		stdin, err := json.Marshal(waitWithCredentials(req)(values[1].(string), values[2].(string)))
		if err != nil {
			return pulumi.StringOutput{}, err
		}

		answer := local.RunOutput(ctx, local.RunOutputArgs{
			Command:                pulumi.String(talosopsexec.Command(ctx) + "versions --timeout " + runningTimeout),
			Stdin:                  pulumi.ToSecret(pulumi.String(string(stdin))).(pulumi.StringOutput),
			Logging:                local.LoggingNone,
			AddPreviousOutputInEnv: pulumi.Bool(false),
		}, pulumi.Parent(c))

		return answer.Stdout().ApplyT(func(now string) (string, error) {
			return warnDifferences(ctx, name, planned, parseRunning(printed).Updated(parseRunning(now)))
		}).(pulumi.StringOutput), nil
	})

	// The request is secret, the answer is not.
	return pulumi.Unsecret(versions).(pulumi.StringOutput)
}

// warnDifferences warns about nodes that do not run what is planned, and returns the versions as the gate prints them.
func warnDifferences(
	ctx *pulumi.Context, cluster string, planned map[string]talos.NodeVersions, running talos.Running,
) (string, error) {
	if text := formatDifferences(running.Differences(planned)); text != "" {
		if err := ctx.Log.Warn(fmt.Sprintf("not every node of cluster %s runs what is planned for it:\n%s\n"+
			"`pulumi up --replace '**::%[1]s-talos'` brings every node to its version of Talos and its schematic (docs/upgrades.md); "+
			"nothing else waits for it", cluster, text), nil); err != nil {
			return "", err
		}
	}

	printed, err := json.Marshal(running)

	return string(printed), err
}

func (c *TalosCluster) setVersionOutputs(args TalosClusterArgs) {
	nodes, controlPlanes := nodeNames(args.nodes()), nodeNames(args.controlPlanes())
	text := func(of func(talos.Running) string) pulumi.StringOutput {
		return c.runningVersions.ApplyT(func(printed string) string {
			return of(parseRunning(printed))
		}).(pulumi.StringOutput)
	}
	c.TalosVersion = text(func(r talos.Running) string { return r.Talos(nodes) })
	c.KubernetesVersion = text(func(r talos.Running) string { return r.Kubernetes(controlPlanes) })
	c.VersionsQueried = text(func(r talos.Running) string {
		if r.Asked.IsZero() {
			return talos.Unknown
		}

		return r.Asked.Format(time.RFC3339)
	})
	c.TalosVersions = c.versionsByNode(func(v talos.NodeVersions) string { return v.Talos })
	c.Schematics = c.versionsByNode(func(v talos.NodeVersions) string { return v.Schematic })
	c.Differences = c.runningVersions.ApplyT(func(printed string) map[string]string {
		return parseRunning(printed).Differences(c.plannedVersions)
	}).(pulumi.StringMapOutput)
}

// versionsByNode returns what each node reported, without nodes that reported nothing.
func (c *TalosCluster) versionsByNode(version func(talos.NodeVersions) string) pulumi.StringMapOutput {
	return c.runningVersions.ApplyT(func(printed string) map[string]string {
		versions := map[string]string{}

		for name, node := range parseRunning(printed).Nodes {
			if text := version(node); text != "" {
				versions[name] = text
			}
		}

		return versions
	}).(pulumi.StringMapOutput)
}

// parseRunning parses the output of the gate, which has no versions in states of older versions of the program.
func parseRunning(printed string) talos.Running {
	var running talos.Running
	if json.Unmarshal([]byte(printed), &running) != nil {
		return talos.Running{}
	}

	return running
}

func formatDifferences(differences map[string]string) string {
	lines := make([]string, 0, len(differences))
	for _, name := range slices.Sorted(maps.Keys(differences)) {
		lines = append(lines, "  "+name+" "+differences[name])
	}

	return strings.Join(lines, "\n")
}

func nodeNames(nodes []ClusterNode) []string {
	list := make([]string, 0, len(nodes))
	for _, n := range nodes {
		list = append(list, n.Name)
	}

	return list
}
