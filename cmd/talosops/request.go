package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"slices"
	"strings"
	"time"
)

const (
	defaultTimeout  = 15 * time.Minute
	defaultInterval = 2 * time.Second
)

// request says which cluster to look at; talosconfig and kubeconfig are secrets and must not appear in any message.
type request struct {
	Timeout           string `json:"timeout"`
	Interval          string `json:"interval"`
	Talosconfig       string `json:"talosconfig"`
	Kubeconfig        string `json:"kubeconfig"`
	ControlPlanes     []node `json:"controlPlanes"`
	Workers           []node `json:"workers"`
	KubernetesVersion string `json:"kubernetesVersion"`
	TalosVersion      string `json:"talosVersion"`

	timeout, interval time.Duration
}

type node struct {
	Name    string `json:"name"`
	Address string `json:"address"`
}

func (r *request) nodes() []node { return slices.Concat(r.ControlPlanes, r.Workers) }

// names returns the nodes' names in order.
func names(nodes []node) []string {
	list := make([]string, 0, len(nodes))
	for _, n := range nodes {
		list = append(list, n.Name)
	}
	slices.Sort(list)

	return list
}

// awaitRequest reads a request, or gives up at an interrupt: a read from a terminal cannot be broken off.
func awaitRequest(ctx context.Context, in io.Reader) (*request, error) {
	type result struct {
		req *request
		err error
	}
	read := make(chan result, 1)
	go func() {
		req, err := readRequest(in)
		read <- result{req, err}
	}()
	select {
	case r := <-read:
		return r.req, r.err
	case <-ctx.Done():
		return nil, errors.New("interrupted before a request came on standard input: see talosops wait --help for its form")
	}
}

func readRequest(in io.Reader) (*request, error) {
	decoder := json.NewDecoder(in)
	decoder.DisallowUnknownFields()
	var req request
	if err := decoder.Decode(&req); err != nil {
		if errors.Is(err, io.EOF) {
			return nil, errors.New("there is no request on standard input: see talosops wait --help for its form")
		}

		return nil, fmt.Errorf("the request on standard input is not what it should be: %w: see talosops wait --help for its form", err)
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("there is more than one request on standard input: send one")
	}

	var problems []string
	req.timeout = parseDuration("timeout", req.Timeout, defaultTimeout, &problems)
	req.interval = parseDuration("interval", req.Interval, defaultInterval, &problems)
	problems = append(problems, req.problems()...)

	return &req, requestError(problems)
}

func parseDuration(field, text string, otherwise time.Duration, problems *[]string) time.Duration {
	if text == "" {
		return otherwise
	}
	duration, err := time.ParseDuration(text)
	if err != nil {
		*problems = append(*problems, fmt.Sprintf("%s: %q is not a duration: state it like 15m or 2s", field, text))

		return otherwise
	}

	return duration
}

// validate repeats what flags may have changed.
func (r *request) validate() error {
	var problems []string
	if r.timeout <= 0 {
		problems = append(problems, fmt.Sprintf("timeout: %s is no time to wait: state one above zero", r.timeout))
	}
	if r.interval <= 0 {
		problems = append(problems, fmt.Sprintf("interval: %s is no pause: state one above zero", r.interval))
	}

	return requestError(problems)
}

func (r *request) problems() []string {
	var problems []string
	report := func(format string, values ...any) { problems = append(problems, fmt.Sprintf(format, values...)) }

	if err := checkTalosconfig(r.Talosconfig); err != nil {
		report("talosconfig: %v", err)
	}
	if _, err := parseKubeconfig(r.Kubeconfig); err != nil {
		report("kubeconfig: %v", err)
	}
	if len(r.ControlPlanes) == 0 {
		report("controlPlanes: none is stated: state at least one")
	}

	seen := map[string]string{}
	for _, group := range []struct {
		field string
		nodes []node
	}{{"controlPlanes", r.ControlPlanes}, {"workers", r.Workers}} {
		for i, n := range group.nodes {
			path := fmt.Sprintf("%s[%d]", group.field, i)
			if n.Name == "" {
				report("%s.name: none is stated: state the node's host name", path)
			}
			if _, err := netip.ParseAddr(n.Address); err != nil {
				report("%s.address: %q is not an IP address: state the node's own, without a prefix length", path, n.Address)
			}
			for _, key := range []struct{ field, value string }{{"name", n.Name}, {"address", n.Address}} {
				first, taken := seen[key.field+"="+key.value]
				if taken && key.value != "" {
					report("%s.%s: %q is already at %s: state each node once", path, key.field, key.value, first)

					continue
				}
				seen[key.field+"="+key.value] = path
			}
		}
	}

	return problems
}

func requestError(problems []string) error {
	if len(problems) == 0 {
		return nil
	}

	plural := "s"
	if len(problems) == 1 {
		plural = ""
	}

	return fmt.Errorf("the request has %d problem%s:\n  %s", len(problems), plural, strings.Join(problems, "\n  "))
}
