package engine

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/luthermonson/go-proxmox"
	"gopkg.in/yaml.v3"

	"proxmox-talos/internal/spec"
	"proxmox-talos/lab/server"
	"proxmox-talos/stacks"
)

// namespace is that of the project's configuration keys.
const namespace = projectName + ":"

// Target is a stack as it is run on a lab.
type Target struct {
	File   []byte // the stack file's content
	Config Config // what the lab adds to it
	Plan   *spec.Plan

	connection server.Connection
}

// NewTarget reads a stack of the project for a lab. A stack written for the default network follows the lab to the one it has.
func NewTarget(project, stack, network string, connection server.Connection) (*Target, error) {
	file, err := os.ReadFile(filepath.Join(project, "Pulumi."+stack+".yaml"))
	if err != nil {
		return nil, fmt.Errorf("unable to read stack %q: %w", stack, err)
	}

	if network != server.DefaultNetwork {
		file = []byte(strings.ReplaceAll(string(file), server.DefaultNetwork+".", network+"."))
	}

	return ReadTarget(stack, file, connection)
}

// ReadTarget plans the stack of a stack file's content for a lab. A stack file that cannot be planned is no error: the program itself reports every problem.
func ReadTarget(stack string, file []byte, connection server.Connection) (*Target, error) {
	var document struct {
		Config map[string]any `yaml:"config"`
	}
	if err := yaml.Unmarshal(file, &document); err != nil {
		return nil, fmt.Errorf("unable to read the file of stack %q: %w", stack, err)
	}

	values := map[string]string{}

	for key, value := range document.Config {
		name, ok := strings.CutPrefix(key, namespace)
		if !ok {
			continue
		}

		b, err := json.Marshal(value)
		if err != nil {
			return nil, fmt.Errorf("unable to read %s of stack %q: %w", key, stack, err)
		}

		values[name] = string(b)
	}

	t := &Target{File: file, connection: connection, Plan: &spec.Plan{}}
	t.Config = t.config()

	var err error
	if values["hosts"], err = t.addHosts(values["hosts"]); err != nil {
		return nil, err
	}

	if plan, err := stacks.Plan(stack, values); err == nil {
		t.Plan = plan
	}

	return t, nil
}

// config is what a user would set for a data centre of his own.
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
	}
}

// addHosts states the port and the key of each of the lab's shells at the host of the same name and address, and returns the hosts with them.
func (t *Target) addHosts(hosts string) (string, error) {
	var configured []map[string]any
	if json.Unmarshal([]byte(hosts), &configured) != nil {
		return hosts, nil // the program says what is wrong with them
	}

	for i, c := range configured {
		for _, host := range t.connection.Hosts {
			if c["name"] != host.Name || c["address"] != host.Address {
				continue
			}

			c["ssh"] = map[string]any{"port": host.Port, "hostKey": host.HostKey}
			path := fmt.Sprintf("%shosts[%d].ssh.", namespace, i)
			t.Config.Values[path+"port"] = fmt.Sprint(host.Port)
			t.Config.Values[path+"hostKey"] = host.HostKey
		}
	}

	b, err := json.Marshal(configured)
	if err != nil {
		return "", fmt.Errorf("unable to write the stack's hosts: %w", err)
	}

	return string(b), nil
}

// RequireLoopback refuses a stack that is meant for other machines than the lab's: a run on it would reach for them.
func (t *Target) RequireLoopback() error {
	for _, host := range t.Plan.Hosts {
		if !host.Address.IsLoopback() {
			return fmt.Errorf("the stack's host %s has address %s, which is not the lab's: preview it here, or run it with pulumi on its own Proxmox", host.Name, host.Address)
		}
	}

	for _, cluster := range t.Plan.Clusters {
		if !cluster.Network.CIDR.Addr().IsLoopback() {
			return fmt.Errorf("the stack's cluster %s has network %s, which is not the lab's: preview it here, or run it with pulumi on its own Proxmox",
				cluster.Name, cluster.Network.CIDR)
		}
	}

	return nil
}

// Reservation is an address that the network's DHCP server holds for a card.
type Reservation struct {
	MAC     string
	Address netip.Addr
}

// Reservations are those that a user would enter in the router for clusters that ask for their addresses.
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

// orphanTime bounds how long a task of a killed run is waited for.
const orphanTime = 10 * time.Minute

// RemoveOrphans removes the stack's VMs whose ids are not known: Options.RemoveOrphans.
func (t *Target) RemoveOrphans(ctx context.Context, known map[string]bool) error {
	ctx, cancel := context.WithTimeout(ctx, orphanTime)
	defer cancel()

	ca, err := os.ReadFile(t.connection.CA)
	if err != nil {
		return fmt.Errorf("unable to read the certificate of the lab's CA: %w", err)
	}

	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(ca)

	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}}
	user, secret, _ := strings.Cut(t.connection.APIToken, "=")
	client := proxmox.NewClient(t.connection.Endpoint+"api2/json", proxmox.WithAPIToken(user, secret), proxmox.WithHTTPClient(&http.Client{Transport: transport}))

	cluster, err := client.Cluster(ctx)
	if err != nil {
		return fmt.Errorf("unable to reach the lab: %w", err)
	}

	resources, err := cluster.Resources(ctx, "vm")
	if err != nil {
		return fmt.Errorf("unable to list the lab's VMs: %w", err)
	}

	planned := map[uint64]string{}

	for _, c := range t.Plan.Clusters {
		for _, node := range c.Nodes() {
			planned[uint64(node.VMID)] = node.Name
		}
	}

	for _, resource := range resources {
		if planned[resource.VMID] != resource.Name || resource.Template == 1 || known[fmt.Sprint(resource.VMID)] {
			continue
		}

		if err := removeVM(ctx, client, resource.Node, int(resource.VMID)); err != nil {
			return fmt.Errorf("unable to remove VM %d: %w", resource.VMID, err)
		}
	}

	return nil
}

// removeVM stops and deletes a VM, after the task that may still be making it has ended.
func removeVM(ctx context.Context, client *proxmox.Client, host string, vmid int) error {
	node, err := client.Node(ctx, host)
	if err != nil {
		return err
	}

	vm, err := node.VirtualMachine(ctx, vmid)
	if err != nil {
		return err
	}

	for vm.Lock != "" {
		select {
		case <-ctx.Done():
			return fmt.Errorf("it stays locked (%s): %w", vm.Lock, ctx.Err())
		case <-time.After(time.Second):
		}

		if err := vm.Ping(ctx); err != nil {
			return err
		}
	}

	if vm.IsRunning() {
		task, err := vm.Stop(ctx)
		if err != nil {
			return err
		}

		if err := task.Wait(ctx, time.Second, orphanTime); err != nil {
			return err
		}
	}

	task, err := vm.Delete(ctx)
	if err != nil {
		return err
	}

	return task.Wait(ctx, time.Second, orphanTime)
}
