package stacks

import (
	"fmt"

	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"
	"github.com/pulumi/pulumi/sdk/v3/go/pulumi/internals"

	"talos-proxmox/internal/tokens"
)

// record is the component that records in the state that the stack was deployed, from the start of its first run. The
// stack's outputs also show that, but only after a successful run.
type record struct{ pulumi.ResourceState }

// recordState is what an earlier run recorded.
type recordState struct {
	Deployed bool   `pulumi:"deployed"`
	ID       string `pulumi:"id"`
	Cluster  string `pulumi:"proxmoxCluster"`
}

// newRecord registers the record and returns what an earlier run recorded.
func newRecord(ctx *pulumi.Context) (r *record, earlier recordState, err error) {
	r = &record{}
	if err := ctx.RegisterComponentResource(tokens.Record, "record", r); err != nil {
		return nil, earlier, fmt.Errorf("unable to register the record of this run: %w", err)
	}

	urn, err := internals.UnsafeAwaitOutput(ctx.Context(), r.URN())
	if err != nil {
		return nil, earlier, fmt.Errorf("unable to register the record of this run: %w", err)
	}
	// Until this run registers outputs, the engine has those of an earlier run, and none in the first.
	var result struct {
		State recordState `pulumi:"state"`
	}
	if _, err := ctx.InvokePackageRaw(getResource, struct {
		URN string `pulumi:"urn"`
	}{fmt.Sprint(urn.Value)}, &result, ""); err != nil {
		return nil, earlier, fmt.Errorf("unable to read the record of an earlier run: %w", err)
	}

	return r, result.State, nil
}

// registerRecord records the stack's id and Proxmox cluster, how a run creates machines, and the planned versions.
func (l *lastRun) registerRecord(
	ctx *pulumi.Context, creationSettings map[string]string, planned map[string]versions,
) error {
	outputs := pulumi.Map{"deployed": pulumi.Bool(true), "id": pulumi.String(l.stackID)}
	if l.proxmoxCluster != "" {
		outputs["proxmoxCluster"] = pulumi.String(l.proxmoxCluster)
	}

	if len(creationSettings) > 0 {
		outputs["making"] = pulumi.ToStringMap(creationSettings)
	}

	ofClusters := pulumi.StringMap{}
	for cluster, v := range planned {
		ofClusters[cluster] = pulumi.String(v.String())
	}

	if len(ofClusters) > 0 {
		outputs["versions"] = ofClusters
	}

	return ctx.RegisterResourceOutputs(l.record, outputs)
}

// recordRefusal registers the record of a run that stops before it creates anything.
func (l *lastRun) recordRefusal(ctx *pulumi.Context) error {
	if l.record == nil {
		return nil
	}

	return l.registerRecord(ctx, l.creationSettings, l.versions)
}
