package engine

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"

	"talos-proxmox/internal/spec"
	"talos-proxmox/lab/server"
	"talos-proxmox/stacks"
)

// namespace prefixes the project's configuration keys.
const namespace = projectName + ":"

// Target is a stack as it runs on a lab.
type Target struct {
	File   []byte // the stack file's content, with the lab's addresses
	Config Config // what the lab adds to it
	Plan   *spec.Plan

	connection server.Connection
}

// NewTarget plans the stack in a stack file's content for the lab with this network and connection: hosts, endpoint and
// networks become the lab's. A stack file that cannot be planned is no error and keeps its addresses: the program
// refuses it, with every problem, before it registers anything.
func NewTarget(stack string, content []byte, network string, connection server.Connection) (*Target, error) {
	file, err := parseStackFile(content)
	if err != nil {
		return nil, fmt.Errorf("unable to read Pulumi.%s.yaml: %w", stack, err)
	}

	t := &Target{connection: connection, Plan: &spec.Plan{}}
	t.Config = t.config()
	file.replaceSecrets(t.Config.Secrets)
	file.dropProxmoxCluster()

	if err := t.plan(stack, file, network); err != nil {
		return nil, fmt.Errorf("unable to plan stack %q for the lab: %w", stack, err)
	}

	if t.File, err = file.bytes(); err != nil {
		return nil, fmt.Errorf("unable to write the file of stack %q: %w", stack, err)
	}

	return t, t.requireLoopback()
}

func (t *Target) plan(stack string, file *stackFile, network string) error {
	hosts, err := file.setShells(t.connection)
	if err != nil {
		return err
	}

	if _, err := planFile(stack, file); err != nil {
		return nil //nolint:nilerr // see NewTarget
	}

	if err := file.mapAddresses(network, hosts); err != nil {
		return err
	}

	t.Plan, err = planFile(stack, file)

	return err
}

// planFile returns the plan of a stack file.
func planFile(stack string, file *stackFile) (*spec.Plan, error) {
	content, err := file.bytes()
	if err != nil {
		return nil, err
	}

	return stacks.PlanUnconnected(stack, content)
}

// config returns what a user would set for his own data centre.
func (t *Target) config() Config {
	return Config{
		Values: map[string]string{
			"proxmoxve:endpoint":    t.connection.Endpoint,
			"talos:imageFactoryUrl": t.connection.FactoryURL,
		},
		Secrets: map[string]string{
			"proxmoxve:apiToken":        t.connection.APIToken,
			namespace + "sshPrivateKey": t.connection.PrivateKey,
		},
		Published: map[string]string{"proxmoxve:ssh": t.providerSSH()},
	}
}

// providerSSH is how the published provider reaches the hosts' shells, for what Proxmox' API cannot do: disks from
// files, snippets. The program needs neither.
func (t *Target) providerSSH() string {
	nodes := make([]map[string]any, 0, len(t.connection.Hosts))
	for _, host := range t.connection.Hosts {
		nodes = append(nodes, map[string]any{"name": host.Name, "address": host.Address, "port": host.Port})
	}

	b, err := json.Marshal(map[string]any{"username": "root", "privateKey": t.connection.PrivateKey, "nodes": nodes})
	if err != nil { // strings and numbers always marshal
		panic(err)
	}

	return string(b)
}

// requireLoopback refuses a plan with an address outside of this computer, which could be someone's machine.
func (t *Target) requireLoopback() error {
	refuse := func(what string, address netip.Addr) error {
		if !address.IsValid() || address.IsLoopback() {
			return nil
		}

		return fmt.Errorf(
			"%s has address %s, which is not the lab's: run this stack with pulumi on its own Proxmox", what, address,
		)
	}

	var problems []error

	for _, host := range t.Plan.Hosts {
		problems = append(problems, refuse("host "+host.Name, host.Address))
	}

	for _, cluster := range t.Plan.Clusters {
		problems = append(problems, refuse("the network of cluster "+cluster.Name, cluster.Network.CIDR.Addr()),
			refuse("the gateway of cluster "+cluster.Name, cluster.Network.Gateway),
			refuse("the virtual IP of cluster "+cluster.Name, cluster.VIP))

		for _, node := range cluster.Nodes() {
			problems = append(problems, refuse("node "+node.Name, node.Address.Addr()))

			if node.Network != nil {
				problems = append(problems, refuse("the gateway of node "+node.Name, node.Network.Gateway))
			}

			for _, link := range node.LinkAddresses(cluster.NetworkOf(node)) {
				problems = append(problems, refuse("a link of node "+node.Name, link.Address.Addr()))
			}
		}
	}

	for _, machine := range t.Plan.Machines {
		problems = append(problems, refuse("the network of machine "+machine.Name, machine.Network.CIDR.Addr()),
			refuse("machine "+machine.Name, machine.Address.Addr()))

		for _, link := range machine.LinkAddresses(machine.Network) {
			problems = append(problems, refuse("a card of machine "+machine.Name, link.Address.Addr()))
		}
	}

	return errors.Join(problems...)
}

// Reservation is an address that the network's DHCP server reserves for a MAC address.
type Reservation struct {
	MAC     string
	Address netip.Addr
}

// Reservations are those that a user would enter in the router for clusters with DHCP.
func (t *Target) Reservations() []Reservation {
	var list []Reservation

	for _, cluster := range t.Plan.Clusters {
		if !cluster.Network.DHCP {
			continue
		}

		for _, node := range cluster.Nodes() {
			list = append(list, Reservation{MAC: node.MAC, Address: node.Address.Addr()})
		}
	}

	return list
}
