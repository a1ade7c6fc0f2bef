package recovery

import (
	"encoding/json"
	"net/netip"
	"strconv"
	"strings"

	"github.com/pulumi/pulumi/sdk/v3/go/common/apitype"

	"talos-proxmox/internal/ownership"
	"talos-proxmox/internal/request"
	"talos-proxmox/internal/tokens"
)

// creation is a machine or template that the killed run was creating, from the inputs of its resource.
type creation struct {
	resource          string
	vmid              int
	name, description string
	host              string // planned; Proxmox may have moved it since
	// byVMID marks a machine that the user named by VMID and no pending operation proves. Only the part of its
	// description after the marker is known: about.
	byVMID bool
	about  string
	// cluster is set for nodes named by VMID; address, of the Talos API, where it is known.
	cluster string
	address netip.Addr
	// source and sourceHost are the VM it is cloned from, if any: Proxmox lists the clone task under the source.
	source     int
	sourceHost string
	provenance string // templates only
	build      *build // templates that are built in their host's shell only
}

// describes reports whether the stack gives the machine this description.
func (c creation) describes(description string) bool {
	if c.byVMID {
		return ownership.About(description) == c.about
	}

	return description == strings.TrimSpace(c.description)
}

// build holds how a template is built and removed in its host's shell.
type build struct {
	remove, script string
	connection     Connection
}

// parseCreation reads a creation from a resource's inputs; false if the resource is neither a machine nor a template.
func parseCreation(resource apitype.ResourceV3) (creation, bool) {
	switch {
	case string(resource.Type) == tokens.VirtualMachine:
		return parseMachine(resource)
	case isTemplate(resource):
		return parseTemplate(resource)
	default:
		return creation{}, false
	}
}

func parseMachine(resource apitype.ResourceV3) (creation, bool) {
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

	c := creation{
		resource:    resource.URN.Name(),
		vmid:        inputs.VMID,
		name:        inputs.Name,
		description: inputs.Description,
		host:        inputs.Host,
		source:      inputs.Clone.VMID, sourceHost: inputs.Clone.Host,
	}
	if c.source != 0 && c.sourceHost == "" {
		c.sourceHost = c.host
	}

	for _, card := range inputs.Initialization.IPConfigs[:min(1, len(inputs.Initialization.IPConfigs))] {
		if prefix, err := netip.ParsePrefix(card.IPv4.Address); err == nil {
			c.address = prefix.Addr()
		}
	}

	return c, true
}

// download is a file that a host was downloading. The task outlives the provider's plugin, and a second download of the
// same file fails at its end because the file exists.
type download struct{ host, file string }

func parseDownload(resource apitype.ResourceV3) (download, bool) {
	if isImport(resource, verbImage) {
		var req request.ImageFile

		return download{req.Host, req.File}, parseRequest(resource, &req) && req.File != ""
	}

	var inputs struct {
		Host string `json:"nodeName"`
		File string `json:"fileName"`
	}

	ok := string(resource.Type) == tokens.File && decode(
		resource.Inputs, &inputs,
	) == nil && inputs.Host != "" && inputs.File != ""

	return download{inputs.Host, inputs.File}, ok
}

// Verbs of talosops that make something through the API.
const (
	verbImage    = "image"
	verbTemplate = "template"
)

// isTemplate reports whether a resource builds a template.
func isTemplate(resource apitype.ResourceV3) bool {
	return strings.HasSuffix(string(resource.URN.QualifiedType()), typeTemplate) || isImport(resource, verbTemplate)
}

// isImport reports whether a resource is a command that calls one of these verbs.
func isImport(resource apitype.ResourceV3, verb string) bool {
	command, _ := resource.Inputs["create"].(string)

	return string(resource.Type) == tokens.LocalCommand && strings.HasSuffix(command, " "+verb)
}

// parseRequest reads the request of a command.
func parseRequest(resource apitype.ResourceV3, req any) bool {
	var inputs struct {
		Stdin string `json:"stdin"`
	}

	return decode(resource.Inputs, &inputs) == nil && json.Unmarshal([]byte(inputs.Stdin), req) == nil
}

// parseTemplate reads the request of the build through the API, or the parameters that precede the build script.
func parseTemplate(resource apitype.ResourceV3) (creation, bool) {
	if isImport(resource, verbTemplate) {
		var req request.Template

		ok := parseRequest(resource, &req) && req.VMID != 0

		return creation{
			resource: resource.URN.Name(), vmid: req.VMID, name: req.Name, host: req.Host, provenance: req.Provenance,
		}, ok
	}

	var inputs struct {
		Delete     string     `json:"delete"`
		Stdin      string     `json:"stdin"`
		Triggers   []string   `json:"triggers"` // the provenance
		Connection Connection `json:"connection"`
	}
	if err := decode(resource.Inputs, &inputs); err != nil {
		return creation{}, false
	}

	parameters := parseAssignments(inputs.Stdin)

	vmid, err := strconv.Atoi(parameters["vmid"])
	if err != nil || parameters["name"] == "" {
		return creation{}, false
	}

	return creation{
		resource: resource.URN.Name(), vmid: vmid, name: parameters["name"], host: parameters["host"],
		provenance: strings.Join(inputs.Triggers, ""),
		build: &build{
			remove:     inputs.Delete,
			script:     inputs.Stdin,
			connection: inputs.Connection,
		},
	}, true
}

// parseAssignments reads the name='value' lines at the start of a script, up to the first multi-line value.
func parseAssignments(script string) map[string]string {
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

// decode decodes a resource's inputs, with secrets in plain text if the export shows them.
func decode(inputs map[string]any, into any) error {
	b, err := json.Marshal(reveal(inputs))
	if err != nil {
		return err
	}

	return json.Unmarshal(b, into)
}
