// Package scripts contains the shell scripts that run on Proxmox hosts. A script is sent on standard input after the
// assignments of its parameters: in a command it would appear in full in every error message, and sshd passes no
// environment variables by default.
package scripts

import (
	"embed"
	"fmt"
	"strings"
)

//go:embed identity.sh template/*.sh host/*.sh
var parts embed.FS

// The actions of the host script.
const (
	ActionFacts   = "facts"   // prints the facts and what an apply would change; writes nothing
	ActionApply   = "apply"   // prepares the host, then prints the facts
	ActionRestore = "restore" // restores every file
	// reboots the host if nothing prevents it; prints lines of "rebooting", "busy <VMIDs>" or "wait <reason>"
	ActionReboot = "reboot"
)

// Parameter is a shell variable of a script.
type Parameter struct{ Name, Value string }

// Host returns the host script; its parts share the parameters of [HostParameters].
func Host(parameters []Parameter) string { return HostScript(Assignments(parameters)) }

// HostScript is Host with the parameters of a request.
func HostScript(assignments string) string {
	return assignments + script(
		"identity", "host/lib", "host/files", "host/cmdline", "host/repositories", "host/wanted", "host/facts",
		"host/reboot", "host/main",
	)
}

// Template returns the script that builds and removes templates of Talos. Its text is an input of registered resources:
// a changed byte runs it again for every template.
func Template(parameters []Parameter) string {
	return Assignments(parameters) + script("identity", "template/state", "template/talos", "template/main")
}

// The recipes for templates of other systems, by the form in which they are published.
const (
	RecipeCloud   = "cloud"   // a cloud image, started once with a seed for cloud-init
	RecipeNixOS   = "nixos"   // a backup, whose disk is used as it is
	RecipeWindows = "windows" // an installation medium with an answer file
)

// SystemTemplate returns the script that builds and removes templates of systems other than Talos.
func SystemTemplate(recipe string, parameters []Parameter) string {
	return Assignments(parameters) + script(
		"identity", "template/state", "template/systems", "template/"+recipe, "template/main",
	)
}

func script(names ...string) string {
	var text strings.Builder

	for _, name := range names {
		content, err := parts.ReadFile(name + ".sh")
		if err != nil {
			panic(fmt.Sprintf("the part %s of a script is not embedded: %v", name, err))
		}

		text.Write(content)
	}

	return text.String()
}

// HostCommand returns the command for a host's shell that runs the host script on standard input. The script of a
// killed run may still run, so its successor waits for the lock.
func HostCommand(action string) string {
	return fmt.Sprintf(`action=%s flock -w 900 /run/lock/talos-proxmox-host.lock bash -c 'eval "$(cat)"'`, action)
}

// Assignments returns the lines that set the parameters.
func Assignments(parameters []Parameter) string {
	var text strings.Builder
	for _, p := range parameters {
		fmt.Fprintf(&text, "%s=%s\n", p.Name, quote(p.Value))
	}

	return text.String()
}

func quote(value string) string { return "'" + strings.ReplaceAll(value, "'", `'\''`) + "'" }
