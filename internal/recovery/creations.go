package recovery

import (
	"encoding/json"
	"net/netip"
	"strconv"
	"strings"

	"github.com/pulumi/pulumi/sdk/v3/go/common/apitype"

	"talos-proxmox/internal/ownership"
	"talos-proxmox/internal/tokens"
)

// creation is a machine that the killed run was making, by the inputs that it was made from.
type creation struct {
	resource          string
	vmid              int
	name, description string
	host              string // where it was to be; it may be on another one by now
	// named is one that no pending creation proves: somebody has named its VMID. Its description is then known only by
	// what it says of the machine, about.
	named bool
	about string
	// cluster is that of a named node, address where a node's Talos API is; both may be unknown.
	cluster string
	address netip.Addr
	// source and sourceHost are the VM that it is cloned from, 0 and empty for none: the task that clones is the source's.
	source     int
	sourceHost string
	build      *build // of a template
}

// describes says whether a description is the one that the stack gives the machine.
func (c creation) describes(description string) bool {
	if c.named {
		return ownership.About(description) == c.about
	}

	return description == strings.TrimSpace(c.description)
}

// build is how a template is built and removed, in its host's shell.
type build struct {
	owner, provenance string
	remove, script    string
	connection        Connection
}

// creationOf reads what a resource's inputs make.
func creationOf(resource apitype.ResourceV3) (creation, bool) {
	switch {
	case string(resource.Type) == tokens.VirtualMachine:
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
		Initialization struct {
			IPConfigs []struct {
				IPv4 struct {
					Address string `json:"address"`
				} `json:"ipv4"`
			} `json:"ipConfigs"`
		} `json:"initialization"`
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

	for _, card := range inputs.Initialization.IPConfigs[:min(1, len(inputs.Initialization.IPConfigs))] {
		if prefix, err := netip.ParsePrefix(card.IPv4.Address); err == nil {
			made.address = prefix.Addr()
		}
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

	ok := string(resource.Type) == tokens.File && decode(
		resource.Inputs, &inputs,
	) == nil && inputs.Host != "" && inputs.File != ""

	return download{inputs.Host, inputs.File}, ok
}

// templateOf reads the parameters that the build script gets in front of it.
func templateOf(resource apitype.ResourceV3) (creation, bool) {
	var inputs struct {
		Delete     string     `json:"delete"`
		Stdin      string     `json:"stdin"`
		Triggers   []string   `json:"triggers"` // the provenance
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
		resource: resource.URN.Name(), vmid: vmid, name: parameters["name"], host: parameters["host"],
		build: &build{
			owner:      parameters["owner"],
			provenance: strings.Join(inputs.Triggers, ""),
			remove:     inputs.Delete,
			script:     inputs.Stdin,
			connection: inputs.Connection,
		},
	}, true
}

// assignments reads the lines name='value' that a script begins with, up to the first value of several lines.
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
