package providers

import (
	"fmt"
	"strings"

	"github.com/blang/semver"
	"github.com/pulumi/pulumi/sdk/v3/go/common/apitype"
	"github.com/pulumi/pulumi/sdk/v3/go/common/workspace"

	"talos-proxmox/internal/tokens"
)

// Plugin is a published provider plugin.
type Plugin tokens.Plugin

// Plugins returns the plugins that the program needs and that the stand-ins replace.
func Plugins() []Plugin {
	return []Plugin{Plugin(tokens.ProxmoxPlugin), Plugin(tokens.TalosPlugin), Plugin(tokens.CommandPlugin)}
}

// String returns name and version.
func (p Plugin) String() string { return p.Name + " " + p.Version }

// Program returns the file name of the plugin's program.
func (p Plugin) Program() string { return "pulumi-resource-" + p.Name }

// InstallArguments returns the arguments of the Pulumi CLI that install the plugin.
func (p Plugin) InstallArguments() []string {
	arguments := []string{"plugin", "install", "resource", p.Name, "v" + p.Version}
	if p.Server != "" {
		arguments = append(arguments, "--server", p.Server)
	}

	return arguments
}

// Folder returns where the plugin is installed for this user: in PULUMI_HOME, by default ~/.pulumi.
func (p Plugin) Folder() (string, error) {
	folder, err := p.descriptor().DirPath()
	if err != nil {
		return "", fmt.Errorf("unable to find the folder of plugin %s: %w", p, err)
	}

	return folder, nil
}

func (p Plugin) descriptor() workspace.PluginDescriptor {
	version := semver.MustParse(p.Version)

	return workspace.PluginDescriptor{
		Name: p.Name, Kind: apitype.ResourcePlugin, Version: &version, PluginDownloadURL: p.Server,
	}
}

// Missing returns the plugins that are not installed in exactly the required version.
func Missing() []Plugin {
	var missing []Plugin

	for _, plugin := range Plugins() {
		if !workspace.HasPlugin(plugin.descriptor()) {
			missing = append(missing, plugin)
		}
	}

	return missing
}

// List joins the names of plugins for a message.
func List(plugins []Plugin) string {
	names := make([]string, 0, len(plugins))
	for _, plugin := range plugins {
		names = append(names, plugin.String())
	}

	return strings.Join(names, ", ")
}
