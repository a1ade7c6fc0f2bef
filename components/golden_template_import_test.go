package components

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"talos-proxmox/internal/enginetest"
	"talos-proxmox/internal/request"
	"talos-proxmox/internal/tokens"
)

// TestGoldenTemplateThroughTheAPI: image and template are commands with the provider's settings, which are secrets, and
// no command goes over SSH.
func TestGoldenTemplateThroughTheAPI(t *testing.T) {
	t.Parallel()

	imported := func(host string) GoldenTemplateArgs {
		args := plannedTemplate(host)
		args.Source = SourceImport

		return args
	}
	o := enginetest.Options{Stack: "lab", Config: map[string]string{
		"proxmoxve:endpoint": "https://pve.test:8006/", "proxmoxve:apiToken": "hunter2", "proxmoxve:tmpDir": "/x",
	}}

	r, err := registerTemplates(t, o, imported("pve1"), imported("pve2"))
	require.NoError(t, err)
	assert.Empty(t, r.ByType(tokens.RemoteCommand))
	assert.Empty(t, r.ByType(tokens.File))

	commands := r.ByType(tokens.LocalCommand)
	assert.Equal(t, []string{"image-pve1-local", "image-pve2-local", "talos-pve1-build", "talos-pve2-build"}, r.Names(tokens.LocalCommand))

	settings := map[string]string{"endpoint": "https://pve.test:8006/", "apiToken": "hunter2"}

	const file = "talos-v1.12.6-376567988ad3-nocloud-amd64-f181a7a2.qcow2"

	command := commands["image-pve1-local"]
	assert.Equal(t, request.ImageFile{
		Proxmox: settings, Host: "pve1", Datastore: "local", File: file,
		URL: "https://factory.talos.dev/image/" + plainSchematic + "/v1.12.6/nocloud-amd64.qcow2",
	}, enginetest.RequestOf[request.ImageFile](t, command))
	assert.Equal(t, "${TALOSOPS:-talosops} image", command.Input("create").StringValue())
	assert.Equal(t, "${TALOSOPS:-talosops} image --remove", command.Input("delete").StringValue())

	command = commands["talos-pve1-build"]
	template := enginetest.RequestOf[request.Template](t, command)
	assert.NotEmpty(t, template.Provenance)
	assert.Equal(t, `["`+template.Provenance+`"]`, jsonText(command.Input("triggers")))
	assert.Contains(t, command.DependsOn(), "image-pve1-local")

	template.Provenance = ""
	assert.Equal(t, request.Template{
		Proxmox: settings, Host: "pve1", VMID: 901, Name: "talos-v1.12.6-talos", Owner: "talos-proxmox/lab",
		About: "Talos v1.12.6, amd64, schematic " + plainSchematic, Image: "local:import/" + file,
		Datastore: "local-lvm", Bridge: "vmbr0", Cores: 4, MemoryMiB: 4096, DiskGiB: 20,
	}, template)

	// The template of the build script is another one: a change of the source replaces the build.
	r, err = registerTemplates(t, o, plannedTemplate("pve1"))
	require.NoError(t, err)
	assert.NotEqual(t, jsonText(command.Input("triggers")), jsonText(r.ByType(tokens.RemoteCommand)["talos-pve1-build"].Input("triggers")))
}
