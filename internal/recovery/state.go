package recovery

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/pulumi/pulumi/sdk/v3/go/common/apitype"
	"github.com/pulumi/pulumi/sdk/v3/go/common/resource"
	"go.yaml.in/yaml/v4"

	"talos-proxmox/internal/ownership"
	"talos-proxmox/internal/spec"
	"talos-proxmox/internal/tokens"
)

// typeTemplate is the qualified type of a template's build.
const typeTemplate = tokens.GoldenTemplate + "$" + tokens.RemoteCommand

// operation is a pending operation of the state.
type operation struct {
	verb     string // creating, updating, deleting, …
	resource string
	reported bool // as a creation or an entry
}

// Connection is how to reach a host's shell. The private key is a secret; without it, the SSH agent is used.
type Connection struct {
	Host       string  `json:"host"`
	Port       float64 `json:"port"`
	User       string  `json:"user"`
	HostKey    string  `json:"hostKey"`
	PrivateKey string  `json:"privateKey"`
}

func (r *recovery) readProject(_ context.Context) error {
	content, err := os.ReadFile(filepath.Join(r.Project, "Pulumi.yaml")) //nolint:gosec // the user names the folder
	if err != nil {
		return fmt.Errorf("unable to read the project: %w; name its folder with --project", err)
	}

	var project struct {
		Name string `yaml:"name"`
	}
	if err := yaml.Unmarshal(content, &project); err != nil || project.Name == "" {
		return fmt.Errorf("unable to read the project's name from %s: %w", filepath.Join(r.Project, "Pulumi.yaml"), err)
	}

	r.name = project.Name

	return nil
}

// stackName returns the stack's name without organization and project.
func (r *recovery) stackName() string { return r.Stack[strings.LastIndex(r.Stack, "/")+1:] }

func (r *recovery) export(
	ctx context.Context, args ...string,
) (apitype.UntypedDeployment, apitype.DeploymentV3, error) {
	return ReadState(ctx, r.Pulumi, r.Stack, args...)
}

// ReadState exports a stack's state; secrets stay encrypted without --show-secrets in args. It needs no lock.
func ReadState(
	ctx context.Context, pulumi Pulumi, stack string, args ...string,
) (state apitype.UntypedDeployment, deployment apitype.DeploymentV3, err error) {
	out, err := pulumi(ctx, nil, append([]string{"stack", "export", "--stack", stack}, args...)...)
	if err != nil {
		return state, deployment, fmt.Errorf("unable to read the state of stack %q: %w", stack, err)
	}

	if err := json.Unmarshal(out, &state); err != nil {
		return state, deployment, fmt.Errorf("unable to read the state of stack %q: %w", stack, err)
	}

	if len(state.Deployment) == 0 || string(state.Deployment) == "null" { // nothing was ever deployed
		return state, deployment, nil
	}

	if err := json.Unmarshal(state.Deployment, &deployment); err != nil {
		return state, deployment, fmt.Errorf("unable to read the state of stack %q: %w", stack, err)
	}

	return state, deployment, nil
}

// WriteState imports a state with this deployment into a stack, which encrypts secrets in plain text.
func WriteState(
	ctx context.Context, pulumi Pulumi, stack string, state apitype.UntypedDeployment, deployment any,
) (err error) {
	var text []byte

	if state.Deployment, err = json.Marshal(deployment); err == nil {
		text, err = json.Marshal(state)
	}

	if err == nil {
		_, err = pulumi(ctx, bytes.NewReader(text), "stack", "import", "--stack", stack)
	}

	if err != nil {
		return fmt.Errorf("unable to write the state of stack %q: %w", stack, err)
	}

	return nil
}

// readState reads the pending operations, and which of them create what is not in the state.
func (r *recovery) readState(ctx context.Context) error {
	_, deployment, err := r.export(ctx)
	if err != nil {
		return err
	}

	for _, p := range deployment.PendingOperations {
		if isTemplate(p.Resource) || isImport(p.Resource, verbImage) {
			// The connection to its host, or the request, is a secret.
			if _, deployment, err = r.export(ctx, "--show-secrets"); err != nil {
				return err
			}

			break
		}
	}

	r.owner.Name = r.name + "/" + r.stackName()
	r.knownVMIDs, r.clustersWithSecrets = map[string]bool{}, map[string]bool{}
	entries := map[string]bool{}

	for _, resource := range deployment.Resources {
		if created := resource.Created; created != nil && (r.runStart.IsZero() || created.Before(r.runStart)) {
			r.runStart = *created
		}

		if id, ok := resource.Outputs["id"].(string); ok && string(resource.Type) == tokens.Record {
			r.owner.ID = id
		}

		cluster, ok := strings.CutSuffix(resource.URN.Name(), tokens.OfSecrets)
		if ok && string(resource.Type) == tokens.Secrets {
			r.clustersWithSecrets[cluster] = true
		}

		// It is deleted already: what has its VMID or name is what the killed run was creating in its place.
		if resource.PendingReplacement {
			continue
		}

		r.addMachine(resource)

		if known, ok := parseEntry(resource); ok {
			entries[known.String()] = true
		}

		if isTemplate(resource) {
			if known, ok := parseTemplate(resource); ok {
				r.knownVMIDs[strconv.Itoa(known.vmid)] = true
			}
		}
	}

	for _, p := range deployment.PendingOperations {
		o := operation{verb: string(p.Type), resource: p.Resource.URN.Name()}
		if p.Type == apitype.OperationTypeCreating {
			if c, ok := parseCreation(p.Resource); ok && !r.knownVMIDs[strconv.Itoa(c.vmid)] {
				o.reported = true

				r.creations = append(r.creations, c)
			}

			if c, ok := parseEntry(p.Resource); ok && !entries[c.String()] {
				o.reported = true

				r.entries = append(r.entries, c)
			}

			if c, ok := parseDownload(p.Resource); ok {
				r.files = append(r.files, c)
			}
		}

		r.pending = append(r.pending, o)
	}

	return nil
}

// addFromPlan completes pending creations from the plan, and adds the machines of Options.VMIDs.
func (r *recovery) addFromPlan(_ context.Context) error {
	if len(r.creations)+len(r.VMIDs) == 0 || r.Plan == nil {
		return nil
	}

	plan, err := r.Plan(r.config)
	if err != nil {
		if len(r.VMIDs) == 0 { // pending creations do not need the plan
			return nil
		}

		return fmt.Errorf("the configuration of stack %q has problems:\n%w", r.Stack, err)
	}

	planned := plannedMachines(plan)

	for i, c := range r.creations {
		if !c.address.IsValid() { // by DHCP
			r.creations[i].address = planned[c.vmid].address
		}
	}

	var problems []error

	for _, vmid := range r.VMIDs {
		c, ok := planned[vmid]
		if !ok {
			problems = append(problems, fmt.Errorf(
				"stack %q plans no machine with VMID %d: talos-proxmox report %s lists those that it plans", r.Stack, vmid, r.Stack,
			))

			continue
		}

		problems = append(problems, r.addByVMID(c))
	}

	return errors.Join(problems...)
}

// addByVMID adds a machine that was named by VMID as one whose creation failed. It refuses one of a cluster that the
// state does not have: a run creates a cluster's secrets before its machines.
func (r *recovery) addByVMID(c creation) error {
	switch {
	case r.knownVMIDs[strconv.Itoa(c.vmid)]:
		return fmt.Errorf(
			"VM %d %s is in the state of stack %q, so no failed creation left it: `pulumi destroy --target` removes it", c.vmid,
			c.name, r.Stack,
		)
	case c.cluster != "" && !r.clustersWithSecrets[c.cluster]:
		return fmt.Errorf(
			"the state of stack %q has nothing of cluster %s, whose machine VM %d %s is: the state was lost, or this is another "+
				"backend (`pulumi whoami --verbose` names it). Log in to the right one, or restore the state: docs/recovery.md, "+
				"\"The state is lost\". If the machine runs, its cluster does; nothing is removed",
			r.Stack, c.cluster, c.vmid, c.name,
		)
	case !slices.ContainsFunc(r.creations, func(pending creation) bool { return pending.vmid == c.vmid }):
		r.creations = append(r.creations, c)
	}

	return nil
}

// plannedMachines returns the machines of a plan by VMID.
func plannedMachines(plan *spec.Plan) map[int]creation {
	planned := map[int]creation{}
	add := func(m spec.VM, c creation) {
		c.resource, c.vmid, c.name, c.host, c.byVMID = m.Name, m.VMID, m.Name, m.Host, true
		if m.Template.VMID != 0 {
			c.source, c.sourceHost = m.Template.VMID, m.Host
		}

		planned[m.VMID] = c
	}

	for _, cluster := range plan.Clusters {
		for _, n := range cluster.Nodes() {
			add(n.VM, creation{
				about: ownership.NodeAbout(string(n.Role), n.Name, n.Cluster), cluster: n.Cluster, address: n.Address.Addr(),
			})
		}
	}

	for _, m := range plan.Machines {
		add(m.VM, creation{about: ownership.MachineAbout(m.Template.System.Name(), m.Name)})
	}

	return planned
}

// Reveal returns a resource's properties with secrets replaced by their plain text; a secret that is still encrypted
// becomes nil.
func Reveal(properties map[string]any) map[string]any {
	revealed, _ := reveal(properties).(map[string]any)

	return revealed
}

// reveal is Reveal for any value.
func reveal(value any) any {
	switch value := value.(type) {
	case map[string]any:
		if value[resource.SigKey] == resource.SecretSig {
			text, _ := value["plaintext"].(string)

			var plain any
			if err := json.Unmarshal([]byte(text), &plain); err != nil {
				return nil
			}

			return reveal(plain)
		}

		revealed := make(map[string]any, len(value))
		for key, field := range value {
			revealed[key] = reveal(field)
		}

		return revealed
	case []any:
		revealed := make([]any, 0, len(value))
		for _, item := range value {
			revealed = append(revealed, reveal(item))
		}

		return revealed
	default:
		return value
	}
}

// cleanState removes the pending operations, and the machines whose VMIDs other machines have, from the state.
func (r *recovery) cleanState(ctx context.Context) error {
	state, _, err := r.export(ctx)
	if err != nil {
		return err
	}

	var fields map[string]json.RawMessage
	if err := json.Unmarshal(state.Deployment, &fields); err != nil ||
		fields["pending_operations"] == nil && len(r.foreign) == 0 {
		return nil //nolint:nilerr // export has parsed it
	}

	delete(fields, "pending_operations")

	if len(r.foreign) > 0 {
		if fields["resources"], err = r.withoutForeign(fields["resources"]); err != nil {
			return err
		}
	}

	if err := WriteState(ctx, r.Pulumi, r.Stack, state, fields); err != nil {
		return err
	}

	for _, f := range r.foreign {
		r.printf("%s is no longer in the state. To have it again, choose another VMID for it (nodes.<n>.vmid), or have VM %d %s "+
			"moved to another VMID.", f.Name, f.VMID, f.Found.Name)
	}

	r.printf(
		"Stack %s has no pending operations any more: %s resumes.", r.Stack,
		cmp.Or(r.Resume, "talos-proxmox deploy "+r.Stack+", or pulumi up --refresh,"),
	)

	return nil
}
