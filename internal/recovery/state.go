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

// typeTemplate is the build of a template.
const typeTemplate = tokens.GoldenTemplate + "$" + tokens.RemoteCommand

// operation is one that the killed run had begun.
type operation struct {
	verb     string // creating, updating, deleting, …
	resource string
	made     bool // one makes a machine, a template or an entry, of which more is said
}

// Connection is how a host's shell is reached; the private key is a secret, without it the SSH agent is used.
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

// stackName is the stack's name without its organization and project.
func (r *recovery) stackName() string { return r.Stack[strings.LastIndex(r.Stack, "/")+1:] }

func (r *recovery) export(
	ctx context.Context, args ...string,
) (apitype.UntypedDeployment, apitype.DeploymentV3, error) {
	return ReadState(ctx, r.Pulumi, r.Stack, args...)
}

// ReadState reads a stack's state; its secrets stay encrypted unless asked for. It needs no lock, and changes nothing.
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

	if len(state.Deployment) == 0 || string(state.Deployment) == "null" { // a stack that nothing was ever made in
		return state, deployment, nil
	}

	if err := json.Unmarshal(state.Deployment, &deployment); err != nil {
		return state, deployment, fmt.Errorf("unable to read the state of stack %q: %w", stack, err)
	}

	return state, deployment, nil
}

// WriteState imports a state with this deployment into a stack; secrets in plain text are encrypted by it.
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

// readState finds the pending operations, and which of them make machines that the state does not know.
func (r *recovery) readState(ctx context.Context) error {
	_, deployment, err := r.export(ctx)
	if err != nil {
		return err
	}

	for _, p := range deployment.PendingOperations {
		if strings.HasSuffix(string(p.Resource.URN.QualifiedType()), typeTemplate) {
			// How its host's shell is reached is a secret.
			if _, deployment, err = r.export(ctx, "--show-secrets"); err != nil {
				return err
			}

			break
		}
	}

	r.owner.Name = r.name + "/" + r.stackName()
	r.known, r.secrets = map[string]bool{}, map[string]bool{}
	entries := map[string]bool{}

	for _, resource := range deployment.Resources {
		if at := resource.Created; at != nil && (r.since.IsZero() || at.Before(r.since)) {
			r.since = *at
		}

		if id, ok := resource.Outputs["id"].(string); ok && string(resource.Type) == tokens.Record {
			r.owner.ID = id
		}

		cluster, ok := strings.CutSuffix(resource.URN.Name(), tokens.OfSecrets)
		if ok && string(resource.Type) == tokens.Secrets {
			r.secrets[cluster] = true
		}

		if string(resource.Type) == tokens.VirtualMachine {
			r.known[resource.ID.String()] = true
		}

		if known, ok := entryOf(resource); ok {
			entries[known.String()] = true
		}

		if strings.HasSuffix(string(resource.URN.QualifiedType()), typeTemplate) {
			if known, ok := templateOf(resource); ok {
				r.known[strconv.Itoa(known.vmid)] = true
			}
		}
	}

	for _, p := range deployment.PendingOperations {
		o := operation{verb: string(p.Type), resource: p.Resource.URN.Name()}
		if p.Type == apitype.OperationTypeCreating {
			if made, ok := creationOf(p.Resource); ok && !r.known[strconv.Itoa(made.vmid)] {
				o.made = true
				r.ours = append(r.ours, made)
			}

			if made, ok := entryOf(p.Resource); ok && !entries[made.String()] {
				o.made = true
				r.entries = append(r.entries, made)
			}

			if made, ok := downloadOf(p.Resource); ok {
				r.files = append(r.files, made)
			}
		}

		r.pending = append(r.pending, o)
	}

	return nil
}

// addPlanned learns from the plan what the state does not say of pending creations, and takes machines that are named
// by their VMIDs for what a creation made.
func (r *recovery) addPlanned(_ context.Context) error {
	if len(r.ours)+len(r.VMIDs) == 0 || r.Plan == nil {
		return nil
	}

	plan, err := r.Plan(r.config)
	if err != nil {
		if len(r.VMIDs) == 0 { // the state says enough of pending creations
			return nil
		}

		return fmt.Errorf("the configuration of stack %q has problems:\n%w", r.Stack, err)
	}

	planned := plannedIn(plan)

	for i, made := range r.ours {
		if !made.address.IsValid() { // by DHCP
			r.ours[i].address = planned[made.vmid].address
		}
	}

	var problems []error

	for _, vmid := range r.VMIDs {
		made, ok := planned[vmid]
		if !ok {
			problems = append(problems, fmt.Errorf(
				"stack %q plans no machine with VMID %d: talos-proxmox report %s lists those that it plans", r.Stack, vmid, r.Stack,
			))

			continue
		}

		problems = append(problems, r.addNamed(made))
	}

	return errors.Join(problems...)
}

// addNamed takes a machine that somebody named for what a creation made that failed. Where the state has nothing of its
// cluster it cannot be that: a run makes a cluster's secrets before its machines.
func (r *recovery) addNamed(made creation) error {
	switch {
	case r.known[strconv.Itoa(made.vmid)]:
		return fmt.Errorf(
			"VM %d %s is in the state of stack %q: it is not a remainder, and `pulumi destroy --target` removes it", made.vmid,
			made.name, r.Stack,
		)
	case made.cluster != "" && !r.secrets[made.cluster]:
		return fmt.Errorf(
			"the state of stack %q has nothing of cluster %s, whose machine VM %d %s is: the state was lost, or this is another "+
				"backend (`pulumi whoami --verbose` names it). Log in to the right one, or restore the state: docs/recovery.md, "+
				"\"The state is lost\". If the machine runs, its cluster does; nothing is removed",
			r.Stack, made.cluster, made.vmid, made.name,
		)
	case !slices.ContainsFunc(r.ours, func(pending creation) bool { return pending.vmid == made.vmid }):
		r.ours = append(r.ours, made)
	}

	return nil
}

// plannedIn are the machines of a plan by VMID.
func plannedIn(plan *spec.Plan) map[int]creation {
	planned := map[int]creation{}
	add := func(m spec.VM, c creation) {
		c.resource, c.vmid, c.name, c.host, c.named = m.Name, m.VMID, m.Name, m.Host, true
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

// Reveal is a resource's properties with the plain text of secrets that were asked for, and without the others.
func Reveal(properties map[string]any) map[string]any {
	revealed, _ := reveal(properties).(map[string]any)

	return revealed
}

// reveal puts the plain text in the place of secrets; one that stays encrypted becomes null.
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

// forgetPending takes the pending operations off the state.
func (r *recovery) forgetPending(ctx context.Context) error {
	state, _, err := r.export(ctx)
	if err != nil {
		return err
	}

	var fields map[string]json.RawMessage
	if err := json.Unmarshal(state.Deployment, &fields); err != nil || fields["pending_operations"] == nil {
		return nil //nolint:nilerr // export has read it
	}

	delete(fields, "pending_operations")

	if err := WriteState(ctx, r.Pulumi, r.Stack, state, fields); err != nil {
		return err
	}

	r.printf(
		"Stack %s has no pending operations any more: %s resumes.", r.Stack,
		cmp.Or(r.Resume, "talos-proxmox deploy "+r.Stack+", or pulumi up --refresh,"),
	)

	return nil
}
