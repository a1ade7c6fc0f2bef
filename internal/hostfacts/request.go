package hostfacts

import (
	"encoding/json"
	"errors"
	"fmt"

	"talos-proxmox/internal/request"
)

// Limits for each host in talosops' verbs that reach hosts.
const (
	DialTimeout = "15s"
	StepTimeout = "2m"
)

// Answer is a host's facts, or the error.
type Answer struct {
	Facts    *Facts // nil with an error
	Document string // the facts as the host printed them
	Err      error
}

// Request returns the standard input of `talosops facts` for hosts. It contains the private key.
func Request(privateKey string, hosts ...request.Host) (string, error) {
	text, err := json.Marshal(request.Facts{
		PrivateKey: privateKey, DialTimeout: DialTimeout, StepTimeout: StepTimeout, Hosts: hosts,
	})
	if err != nil {
		return "", fmt.Errorf("unable to write the request to the hosts: %w", err)
	}

	return string(text), nil
}

// Answers parses the output of `talosops facts`, by host name.
func Answers(output string) (map[string]Answer, error) {
	var document request.FactsResult
	if err := json.Unmarshal([]byte(output), &document); err != nil {
		return nil, fmt.Errorf("unable to read the hosts' answers: %w: use the talosops of this program's version", err)
	}

	answers := map[string]Answer{}

	for _, h := range document.Hosts {
		answer := Answer{Document: string(h.Facts)}
		if h.Error != "" {
			answer.Err = errors.New(h.Error)
		} else {
			answer.Facts, answer.Err = Parse(h.Facts)
		}

		answers[h.Name] = answer
	}

	return answers, nil
}
