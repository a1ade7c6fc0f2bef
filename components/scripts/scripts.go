// Package scripts holds the shell that runs on Proxmox hosts. A script is sent on standard input behind the assignments of its parameters: in a command it would
// stand in full in every error message, and sshd passes no environment on by default.
package scripts

import (
	"embed"
	"fmt"
	"strings"
)

//go:embed host/*.sh
var hostParts embed.FS

// The actions of the host script.
const (
	ActionFacts   = "facts"   // prints what the host is, and what an apply would change; writes nothing
	ActionApply   = "apply"   // makes the host as wanted, then prints the facts
	ActionRestore = "restore" // gives back every file as it was
	ActionReboot  = "reboot"  // reboots while no machine runs; prints "rebooting" or "busy <VMIDs>"
)

// Parameter is a shell variable of a script.
type Parameter struct{ Name, Value string }

// Host is the host script: the parts share the parameters that [HostParameters] makes.
func Host(parameters []Parameter) string {
	var text strings.Builder
	text.WriteString(Assignments(parameters))
	for _, part := range []string{"lib", "files", "cmdline", "repositories", "wanted", "facts", "main"} {
		content, err := hostParts.ReadFile("host/" + part + ".sh")
		if err != nil {
			panic(fmt.Sprintf("the part %s of the host script is not embedded: %v", part, err))
		}
		text.Write(content)
	}

	return text.String()
}

// HostCommand is what a host's shell is asked to run with the host script on standard input. The script of a killed run may live on; its successor waits for
// the lock.
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
