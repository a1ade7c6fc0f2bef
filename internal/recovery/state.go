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
	typeFile     = "proxmoxve:Download/file:File"
)

// operation is one that the killed run had begun.
type operation struct {
	verb     string // creating, updating, deleting, …
	resource string
	made     bool // one makes a machine, a template or a mapping, of which more is said
}

// creation is a machine that the killed run was making, by the inputs that it was made from.
type creation struct {
	resource          string
	vmid              int
	name, description string // the description is empty for one whose inputs are not known
	host              string // where it was to be; it may be on another one by now
	// source and sourceHost are the VM that it is cloned from, 0 and empty for none: the task that clones is the source's.
	source     int
	sourceHost string
	build      *build // of a template
}

// build is how a template is built and removed, in its host's shell.
type build struct {
	owner, provenance string
	remove, script    string
	connection        Connection
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
	mappings := map[string]bool{}

	for _, resource := range deployment.Resources {
		switch string(resource.Type) {
		case typeMachine:
			r.known[resource.ID.String()] = true
		case typeMapping:
			if known, ok := mappingOf(resource); ok {
				mappings[known.name] = true
			}
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

			if made, ok := mappingOf(p.Resource); ok && !mappings[made.name] {
				o.made = true
				r.mappings = append(r.mappings, made)
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

// creationOf reads what a resource's inputs make.
func creationOf(resource apitype.ResourceV3) (creation, bool) {
	switch {
	case string(resource.Type) == typeMachine:
		return machineOf(resource)
	case strings.HasSuffix(string(resource.URN.QualifiedType()), typeTemplate):
		return templateOf(resource)
	default:
		return creation{}, false
	}
}

func machineOf(resource apitype.ResourceV3) (creation, bool) {
	var inputs struct {
		VMID        int    `json:"vmId"`
		Name        string `json:"name"`
		Description string `json:"description"`
		Host        string `json:"nodeName"`
		Clone       struct {
			VMID int    `json:"vmId"`
			Host string `json:"nodeName"`
		} `json:"clone"`
	}
	if err := decode(resource.Inputs, &inputs); err != nil || inputs.VMID == 0 || inputs.Name == "" {
		return creation{}, false
	}

	made := creation{
		resource:    resource.URN.Name(),
		vmid:        inputs.VMID,
		name:        inputs.Name,
		description: inputs.Description,
		host:        inputs.Host,
		source:      inputs.Clone.VMID, sourceHost: inputs.Clone.Host,
	}
	if made.source != 0 && made.sourceHost == "" {
		made.sourceHost = made.host
	}

	return made, true
}

// download is a file that a host was downloading. The task outlives its plugin; a second download would find the file
// in its way at the end.
type download struct{ host, file string }

func downloadOf(resource apitype.ResourceV3) (download, bool) {
	var inputs struct {
		Host string `json:"nodeName"`
		File string `json:"fileName"`
	}

	ok := string(resource.Type) == typeFile && decode(
		resource.Inputs, &inputs,
	) == nil && inputs.Host != "" && inputs.File != ""

	return download{inputs.Host, inputs.File}, ok
}

// templateOf reads the parameters that the build script gets in front of it.
func templateOf(resource apitype.ResourceV3) (creation, bool) {
	var inputs struct {
		Delete     string     `json:"delete"`
		Stdin      string     `json:"stdin"`
		Connection Connection `json:"connection"`
	}
	if err := decode(resource.Inputs, &inputs); err != nil {
		return creation{}, false
	}

	parameters := assignments(inputs.Stdin)

	vmid, err := strconv.Atoi(parameters["vmid"])
	if err != nil || parameters["name"] == "" {
		return creation{}, false
	}

	return creation{
		resource: resource.URN.Name(), vmid: vmid, name: parameters["name"],
		build: &build{
			owner:      parameters["owner"],
			provenance: parameters["provenance"],
			remove:     inputs.Delete,
			script:     inputs.Stdin,
			connection: inputs.Connection,
		},
	}, true
}

// assignments reads the lines name='value' that a script begins with.
func assignments(script string) map[string]string {
	values := map[string]string{}

	for line := range strings.Lines(script) {
		name, value, found := strings.Cut(strings.TrimSuffix(line, "\n"), "='")
		if !found || !strings.HasSuffix(value, "'") {
			break
		}

		values[name] = strings.TrimSuffix(value, "'")
	}

	return values
}

// decode brings a resource's inputs into a Go value, with the plain text of secrets that were asked for.
func decode(inputs map[string]any, into any) error {
	b, err := json.Marshal(reveal(inputs))
	if err != nil {
		return err
	}

	return json.Unmarshal(b, into)
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
