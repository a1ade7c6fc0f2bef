package components

import (
	"context"
	"encoding/base64"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"
	"github.com/pulumi/pulumi/sdk/v3/go/pulumi/internals"

	"talos-proxmox/internal/tlsprobe"
	"talos-proxmox/internal/vmlookup"
)

// silentAfter is how long a control plane may take until a run does not count on it: longer than Talos' API takes to
// start again.
const silentAfter = 5 * time.Second

// askControlPlanes finds out which control planes of a cluster that was begun do not answer, while another one does.
// They keep no client from its renewal: a machine configuration is not applied, and a command is not repeated, for
// other clients alone, since either would wait for them in vain. Once they answer, the next run does both.
func (c *TalosCluster) askControlPlanes(ctx *pulumi.Context, _ string, args TalosClusterArgs) error {
	if begun, _ := vmlookup.Of(ctx).HasBegun(args.Name); !begun {
		return nil
	}

	certificate, err := internals.UnsafeAwaitOutput(ctx.Context(), c.secrets.MachineSecrets.Certs().Os().Cert())
	if err != nil {
		return fmt.Errorf("unable to read the Talos authority: %w", err)
	}

	text, _ := certificate.Value.(string)

	authority, err := base64.StdEncoding.DecodeString(text)
	if err != nil {
		return fmt.Errorf("unable to read the Talos authority: %w", err)
	}

	controlPlanes := args.controlPlanes()
	problems := make([]error, len(controlPlanes))

	var wg sync.WaitGroup
	for i, n := range controlPlanes {
		wg.Go(func() { problems[i] = answersNow(ctx.Context(), n, args.Network, authority) })
	}

	wg.Wait()

	if !slices.Contains(problems, nil) {
		return nil // what is to be done then is no matter of clients
	}

	c.silent = map[string]bool{}

	for i, n := range controlPlanes {
		if problems[i] == nil || !vmlookup.Of(ctx).HasRun(n.Name) {
			continue
		}

		c.silent[n.Name] = true

		if err := ctx.Log.Warn(fmt.Sprintf("control plane %s does not answer as a member of its cluster: clients whose "+
			"certificates end soon are renewed without it, and what is changed besides may wait for it. Once it is back, the "+
			"next pulumi up continues; one that is dead is made again with `pulumi up --replace '**::%[1]s-vm'`. What was seen:\n%[2]v",
			n.Name, problems[i]), &pulumi.LogArgs{Resource: c}); err != nil {
			return err
		}
	}

	return nil
}

// answersNow returns why a control plane is not counted on.
func answersNow(ctx context.Context, n ClusterNode, network Network, authority []byte) error {
	m := reached(n.Name, n.Machine, network)
	m.Address = n.prefix().Addr()
	expected := tlsprobe.Expected{Authority: authority, Configured: true}

	return tlsprobe.Await(ctx, m, silentAfter, func(ctx context.Context) tlsprobe.Answer {
		return tlsprobe.Look(ctx, m.Address, expected)
	}, func(string) {})
}

// keptCalls says whether calls are repeated for other clients alone; nil = they are.
func (c *TalosCluster) keptCalls() pulumi.BoolInput {
	if len(c.silent) == 0 {
		return nil
	}

	return pulumi.Bool(true)
}

// keptGate is the same of the health gate, which is repeated for a control plane that this run made again.
func (c *TalosCluster) keptGate(args TalosClusterArgs) pulumi.BoolInput {
	var seen []any

	for i, n := range args.controlPlanes() {
		if c.silent[n.Name] {
			seen = append(seen, c.nodes[i].seen)
		}
	}

	if len(seen) == 0 {
		return nil
	}

	return pulumi.All(seen...).ApplyT(func(seen []any) bool {
		return !slices.ContainsFunc(seen, func(s any) bool { return !s.(vmlookup.Seen).Configured })
	}).(pulumi.BoolOutput)
}
