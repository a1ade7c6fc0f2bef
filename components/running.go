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

// runningTimeout bounds the question to nodes that did not run what was planned; one that does not answer counts as it
// did before.
const runningTimeout = "5s"

// runs is what the nodes run, as JSON of [talos.Running]: what they reported to the health gate, which asks them when
// it runs. A node that did not run what was planned may have been upgraded since, and no resource shows that: nodes are
// then asked again, in previews too.
func (c *TalosCluster) runs(ctx *pulumi.Context, name string, question request.Wait) pulumi.StringOutput {
	planned := question.Planned()
	c.planned = planned
	running := pulumi.All(
		c.gate.Stdout, c.all, c.Kubeconfig,
	).ApplyT(func(values []any) (pulumi.StringOutput, error) {
		printed := values[0].(string)
		if len(readRunning(printed).Differences(planned)) == 0 {
			return pulumi.String(printed).ToStringOutput(), nil
		}

		stdin, err := json.Marshal(withConfigurations(question)(values[1].(string), values[2].(string)))
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
			return judgeRunning(ctx, name, planned, readRunning(printed).Updated(readRunning(now)))
		}).(pulumi.StringOutput), nil
	})

	// The request is secret, the answer is not.
	return pulumi.Unsecret(running).(pulumi.StringOutput)
}

// judgeRunning warns of nodes that do not run what is planned, and returns what runs as the gate prints it.
func judgeRunning(
	ctx *pulumi.Context, cluster string, planned map[string]talos.NodeVersions, running talos.Running,
) (string, error) {
	if text := differencesText(running.Differences(planned)); text != "" {
		if err := ctx.Log.Warn(fmt.Sprintf("not every node of cluster %s runs what is planned for it:\n%s\n"+
			"`pulumi up --replace '**::%[1]s-talos'` brings every node to its version of Talos and its schematic (docs/upgrades.md); "+
			"nothing else waits for it", cluster, text), nil); err != nil {
			return "", err
		}
	}

	printed, err := json.Marshal(running)

	return string(printed), err
}

// makeVersions makes outputs of what runs.
func (c *TalosCluster) makeVersions(args TalosClusterArgs) {
	nodes, controlPlanes := nodeNames(args.nodes()), nodeNames(args.controlPlanes())
	text := func(of func(talos.Running) string) pulumi.StringOutput {
		return c.running.ApplyT(func(printed string) string { return of(readRunning(printed)) }).(pulumi.StringOutput)
	}
	c.TalosVersion = text(func(r talos.Running) string { return r.Talos(nodes) })
	c.KubernetesVersion = text(func(r talos.Running) string { return r.Kubernetes(controlPlanes) })
	c.VersionsAsked = text(func(r talos.Running) string {
		if r.Asked.IsZero() {
			return talos.Unknown
		}

		return r.Asked.Format(time.RFC3339)
	})
	c.TalosVersions = c.byNode(func(v talos.NodeVersions) string { return v.Talos })
	c.Schematics = c.byNode(func(v talos.NodeVersions) string { return v.Schematic })
	c.Differences = c.running.ApplyT(func(printed string) map[string]string {
		return readRunning(printed).Differences(c.planned)
	}).(pulumi.StringMapOutput)
}

// byNode is what each node told, without those that did not.
func (c *TalosCluster) byNode(of func(talos.NodeVersions) string) pulumi.StringMapOutput {
	return c.running.ApplyT(func(printed string) map[string]string {
		told := map[string]string{}

		for name, node := range readRunning(printed).Nodes {
			if text := of(node); text != "" {
				told[name] = text
			}
		}

		return told
	}).(pulumi.StringMapOutput)
}

// readRunning reads the result of the gate, which says nothing of this in states of older versions of the program.
func readRunning(printed string) talos.Running {
	var running talos.Running
	if json.Unmarshal([]byte(printed), &running) != nil {
		return talos.Running{}
	}

	return running
}

func differencesText(differences map[string]string) string {
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
