// Package scripts holds the shell that runs on Proxmox hosts. A script is sent on standard input behind the assignments
// of its parameters: in a command it would stand in full in every error message, and sshd passes no environment on by
// default.
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
	ActionFacts   = "facts"   // prints what the host is, and what an apply would change; writes nothing
	ActionApply   = "apply"   // makes the host as wanted, then prints the facts
	ActionRestore = "restore" // gives back every file as it was
	// reboots where nothing is in the way; prints "rebooting", "busy <VMIDs>", or "wait <reason>" in each line
	ActionReboot = "reboot"
)

// Parameter is a shell variable of a script.
type Parameter struct{ Name, Value string }

// Host is the host script: the parts share the parameters that [HostParameters] makes.
func Host(parameters []Parameter) string {
	return script(
		parameters, "identity", "host/lib", "host/files", "host/cmdline", "host/repositories", "host/wanted", "host/facts",
		"host/reboot", "host/main",
	)
}

// Template is the script that makes and removes templates of Talos. Its text is an input of what stacks have
// registered: a changed byte runs it again for every template.
func Template(parameters []Parameter) string {
	return script(parameters, "identity", "template/state", "template/talos", "template/main")
}

// The recipes of templates of other systems, by what is published of them.
const (
	RecipeCloud   = "cloud"   // a cloud image, which is started once with a seed for cloud-init
	RecipeNixOS   = "nixos"   // a backup, whose disk is taken as it is
	RecipeWindows = "windows" // a medium, which installs by an answer file
)

// SystemTemplate is the script that makes and removes templates of another system than Talos.
func SystemTemplate(recipe string, parameters []Parameter) string {
	return script(
		parameters, "identity", "template/state", "template/systems", "template/"+recipe, "template/main",
	)
}

func script(parameters []Parameter, names ...string) string {
	var text strings.Builder
	text.WriteString(Assignments(parameters))

	for _, name := range names {
		content, err := parts.ReadFile(name + ".sh")
		if err != nil {
			panic(fmt.Sprintf("the part %s of a script is not embedded: %v", name, err))
		}

		text.Write(content)
	}

	return text.String()
}

// HostCommand is what a host's shell is asked to run with the host script on standard input. The script of a killed run
// may live on; its successor waits for the lock.
func HostCommand(action string) string {
	return fmt.Sprintf(`action=%s flock -w 900 /run/lock/talos-proxmox-host.lock bash -c 'eval "$(cat)"'`, action)
}

// Assignments are the lines that set the parameters.
func Assignments(parameters []Parameter) string {
	var text strings.Builder
	for _, p := range parameters {
		fmt.Fprintf(&text, "%s=%s\n", p.Name, quote(p.Value))
	}

	return text.String()
}

func quote(value string) string { return "'" + strings.ReplaceAll(value, "'", `'\''`) + "'" }
