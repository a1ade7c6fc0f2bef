package recovery

import (
	"encoding/json"
	"strconv"
	"strings"

	"github.com/pulumi/pulumi/sdk/v3/go/common/apitype"
)

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
