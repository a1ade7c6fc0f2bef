// Package hostfacts asks Proxmox hosts what they are: the requests that talosops reads, and the answers that it prints.
package hostfacts

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"talos-proxmox/components/scripts"
	"talos-proxmox/internal/host"
	"talos-proxmox/internal/request"
	"talos-proxmox/internal/spec"
)

// Limits of each host's part in talosops' verbs that reach hosts.
const (
	DialTimeout = "15s"
	StepTimeout = "2m"
)

// Answer is what came of asking a host.
type Answer struct {
	Facts    *host.Facts // nil where there is an error
	Document string      // the facts as the host printed them
	Err      error
}

// Host is a host in a request: how it is reached, with the script of its preparation.
func Host(owner string, shell request.Shell, h spec.Host, needs host.Needs) request.Host {
	parameters := scripts.HostParameters(h, owner, needs.MustRun(h))
	if host.WhenIdle(h) {
		parameters = append(parameters, scripts.Parameter{Name: "clusters", Value: strings.Join(needs.Clusters, " ")})
	}

	return request.Host{Shell: shell, Script: scripts.Host(parameters)}
}

// Request is what `talosops facts` reads to ask these hosts. It holds the private key.
func Request(privateKey string, hosts ...request.Host) (string, error) {
	text, err := json.Marshal(request.Facts{
		PrivateKey: privateKey, DialTimeout: DialTimeout, StepTimeout: StepTimeout, Hosts: hosts,
	})
	if err != nil {
		return "", fmt.Errorf("unable to write the request to the hosts: %w", err)
	}

	return string(text), nil
}

// Read reads what `talosops facts` printed, by host name.
func Read(printed string) (map[string]Answer, error) {
	var document request.Answers
	if err := json.Unmarshal([]byte(printed), &document); err != nil {
		return nil, fmt.Errorf("unable to read the hosts' answers: %w: use the talosops of this program's version", err)
	}

	answers := map[string]Answer{}

	for _, h := range document.Hosts {
		answer := Answer{Document: string(h.Facts)}
		if h.Error != "" {
			answer.Err = errors.New(h.Error)
		} else {
			answer.Facts, answer.Err = host.Parse(h.Facts)
		}

		answers[h.Name] = answer
	}

	return answers, nil
}
