package recovery

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/pulumi/pulumi/sdk/v3/go/common/apitype"
	"gopkg.in/yaml.v3"
)

// Types of resources whose creation can leave something that blocks the next one; a file does so only
// while it is downloaded, and is overwritten then. Anything else is not on Proxmox.
const (
	typeMachine  = "proxmoxve:VM/virtualMachine:VirtualMachine"
	typeTemplate = "talos-proxmox:template:GoldenTemplate$command:remote:Command"
	typeMapping  = "proxmoxve:Hardware/mapping/pci:Pci"
	typeRole     = "proxmoxve:Permission/role:Role"
	typeUser     = "proxmoxve:Permission/user:User"
	typeToken    = "proxmoxve:User/token:Token" //nolint:gosec // a type
	typeFile     = "proxmoxve:Download/file:File"
)

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

	r.known = map[string]bool{}
	entries := map[string]bool{}

	for _, resource := range deployment.Resources {
		if string(resource.Type) == typeMachine {
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

// addNamed takes machines that are named by their VMIDs for what a creation made.
func (r *recovery) addNamed(_ context.Context) error {
	if len(r.VMIDs) == 0 {
		return nil
	}

	plan, err := r.Plan(r.config)
	if err != nil {
		return fmt.Errorf("the configuration of stack %q has problems:\n%w", r.Stack, err)
	}

	planned := map[int]creation{}

	for _, n := range plan.VMs() {
		planned[n.VMID] = creation{
			resource: n.Name, vmid: n.VMID, name: n.Name, host: n.Host, source: n.Template.VMID, sourceHost: n.Host,
		}
	}

	for _, vmid := range r.VMIDs {
		made, ok := planned[vmid]
		switch {
		case !ok:
			return fmt.Errorf(
				"stack %q plans no machine with VMID %d: make report STACK=%s lists those that it plans", r.Stack, vmid, r.Stack,
			)
		case r.known[strconv.Itoa(vmid)]:
			return fmt.Errorf(
				"VM %d %s is in the state of stack %q: it is not a remainder, and `pulumi destroy --target` removes it", vmid,
				made.name, r.Stack,
			)
		case !slices.ContainsFunc(r.ours, func(pending creation) bool { return pending.vmid == vmid }):
			r.ours = append(r.ours, made)
		}
	}

	return nil
}

// secretKey marks a secret in an exported state.
const secretKey = "4dabf18193072939515e22adb298388d" //nolint:gosec // the same in every state of Pulumi

// Reveal is a resource's properties with the plain text of secrets that were asked for, and without the others.
func Reveal(properties map[string]any) map[string]any {
	revealed, _ := reveal(properties).(map[string]any)

	return revealed
}

// reveal puts the plain text in the place of secrets; one that stays encrypted becomes null.
func reveal(value any) any {
	switch value := value.(type) {
	case map[string]any:
		if _, secret := value[secretKey]; secret {
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

	if state.Deployment, err = json.Marshal(fields); err != nil {
		return fmt.Errorf("unable to write the state of stack %q: %w", r.Stack, err)
	}

	b, err := json.Marshal(state)
	if err != nil {
		return fmt.Errorf("unable to write the state of stack %q: %w", r.Stack, err)
	}

	if _, err := r.Pulumi(ctx, bytes.NewReader(b), "stack", "import", "--stack", r.Stack); err != nil {
		return fmt.Errorf("unable to write the state of stack %q: %w", r.Stack, err)
	}

	r.say(
		"Stack %s has no pending operations any more: make deploy STACK=%s, or pulumi up --refresh, resumes.", r.Stack,
		r.Stack,
	)

	return nil
}
