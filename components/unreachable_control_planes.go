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

// unreachableAfter is how long a control plane may take to answer: longer than Talos' API takes to restart.
const unreachableAfter = 5 * time.Second

// findUnreachable finds control planes of an existing cluster that do not answer while another one does. They must not
// prevent the renewal of client certificates: no machine configuration is applied and no command repeated only for new
// client credentials, because both would wait for them in vain. The next run does both once they answer.
func (c *TalosCluster) findUnreachable(ctx *pulumi.Context, _ string, args TalosClusterArgs) error {
	if bootstrapped, _ := vmlookup.FromContext(ctx).WasBootstrapped(args.Name); !bootstrapped {
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
		wg.Go(func() { problems[i] = probeControlPlane(ctx.Context(), n, args.network(n), authority) })
	}

	wg.Wait()

	if !slices.Contains(problems, nil) {
		return nil // the cluster is down, and needs more than new credentials
	}

	c.unreachable = map[string]bool{}

	for i, n := range controlPlanes {
		// One without a configuration in the state never was a member: an interrupted run made it, and this one configures
		// it.
		if problems[i] == nil || vmlookup.FromContext(ctx).Configuration(n.Name) == "" {
			continue
		}

		c.unreachable[n.Name] = true

		if err := ctx.Log.Warn(fmt.Sprintf("control plane %s does not answer as a member of its cluster: client "+
			"certificates that expire soon are renewed without it, and other changes may wait for it. Once it is back, the "+
			"next pulumi up continues; replace one that is dead with `pulumi up --replace '**::%[1]s-vm'`. What was seen:\n%[2]v",
			n.Name, problems[i]), &pulumi.LogArgs{Resource: c}); err != nil {
			return err
		}
	}

	return nil
}

// probeControlPlane returns why a control plane counts as unreachable.
func probeControlPlane(ctx context.Context, n ClusterNode, network Network, authority []byte) error {
	m := probeTarget(n, network)
	expected := tlsprobe.Expected{Authority: authority, Configured: true}

	_, err := tlsprobe.Await(ctx, m, unreachableAfter, func(ctx context.Context) tlsprobe.Answer {
		return tlsprobe.Probe(ctx, m.Address, expected)
	}, func(string) {})

	return err
}

// keepRequest says whether commands keep their last request if only client credentials differ.
func (c *TalosCluster) keepRequest() pulumi.BoolInput { return pulumi.Bool(len(c.unreachable) > 0) }

// keepGateRequest does the same for the health gate, which runs again for a control plane that this run recreated.
func (c *TalosCluster) keepGateRequest(args TalosClusterArgs) pulumi.BoolInput {
	var lookups []any

	for i, n := range args.controlPlanes() {
		if c.unreachable[n.Name] {
			lookups = append(lookups, c.nodes[i].lookup)
		}
	}

	if len(lookups) == 0 {
		return nil
	}

	return pulumi.All(lookups...).ApplyT(func(results []any) bool {
		return !slices.ContainsFunc(results, func(r any) bool { return !r.(vmlookup.State).Configured })
	}).(pulumi.BoolOutput)
}
