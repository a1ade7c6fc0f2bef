package main

import (
	"context"
	"slices"
	"sync"
	"time"

	"talos-proxmox/internal/request"
)

// unexpected ends a test with what it does not expect.
type unexpected struct {
	talosAPI
	kubernetesAPI
}

func (unexpected) close() {}

// fakeCluster answers for every node by its address; before each round of answers it may be changed by a step.
type fakeCluster struct {
	unexpected

	mu        sync.Mutex
	servicesL map[string][]service
	membersL  []member
	talos     map[string]string
	images    map[string]string // schematic by address
	down      map[string]error  // Talos API by address
	apiDown   map[string]error
	nodesL    []kubeNode
	nodesErr  error
	machines  map[string]gpuMachine // by address
	gpus      gpuCluster
	gpusErr   error
	network   podNetwork
	asked     int
	onAsk     func(c *fakeCluster, asked int) // called before each answer of the first control plane's services
}

// at is what a map has of an address, and the error of what was asked.
func at[T any](c *fakeCluster, of map[string]T, address, asked string) (T, error) {
	c.mu.Lock()
	defer c.mu.Unlock()

	return of[address], c.down[asked+address]
}

// after changes the cluster in a while.
func (c *fakeCluster) after(d time.Duration, change func()) {
	time.AfterFunc(d, func() {
		c.mu.Lock()
		defer c.mu.Unlock()

		change()
	})
}

func testControlPlanes() request.Common {
	return request.Common{
		ControlPlanes: []node{
			{Name: "cp-1", Address: "127.0.9.1"}, {Name: "cp-2", Address: "127.0.9.2"}, {Name: "cp-3", Address: "127.0.9.3"},
		},
	}
}

// healthyCluster is one of these nodes.
func healthyCluster(controlPlanes, workers []node) *fakeCluster {
	c := &fakeCluster{
		servicesL: map[string][]service{},
		talos:     map[string]string{},
		images:    map[string]string{},
		down:      map[string]error{},
		apiDown:   map[string]error{},
	}

	for i, n := range slices.Concat(controlPlanes, workers) {
		required := nodeServices
		if i < len(controlPlanes) {
			required = controlPlaneServices

			c.membersL = append(c.membersL, member{Hostname: n.Name})
		}

		for _, id := range required {
			c.servicesL[n.Address] = append(
				c.servicesL[n.Address], service{ID: id, State: "Running", Known: true, Healthy: true},
			)
		}

		c.talos[n.Address], c.images[n.Address] = "v1.12.6", "376567"
		c.nodesL = append(c.nodesL, kubeNode{Name: n.Name, Kubelet: "v1.35.0"})
	}

	return c
}

func (c *fakeCluster) services(_ context.Context, address string) ([]service, error) {
	c.mu.Lock()
	defer c.mu.Unlock()

	if address == "127.0.9.1" {
		c.asked++
		if c.onAsk != nil {
			c.onAsk(c, c.asked)
		}
	}

	return c.servicesL[address], c.down[address]
}

func (c *fakeCluster) members(_ context.Context, address string) ([]member, error) {
	c.mu.Lock()
	defer c.mu.Unlock()

	return c.membersL, c.down["etcd "+address]
}

func (c *fakeCluster) etcdStatus(_ context.Context, address string) (etcdStatus, error) {
	c.mu.Lock()
	defer c.mu.Unlock()

	return etcdStatus{HasLeader: true}, c.down["etcd "+address]
}

func (c *fakeCluster) version(_ context.Context, address string) (string, error) {
	return at(c, c.talos, address, "version ")
}

func (c *fakeCluster) schematic(_ context.Context, address string) (string, error) {
	return at(c, c.images, address, "schematic ")
}

func (c *fakeCluster) apiVersion(_ context.Context, address string) (string, error) {
	c.mu.Lock()
	defer c.mu.Unlock()

	return "v1.35.0", c.apiDown[address]
}

func (c *fakeCluster) gpuMachine(_ context.Context, address string) (gpuMachine, error) {
	return at(c, c.machines, address, "gpu ")
}

func (c *fakeCluster) podNetwork(context.Context, string, string) (podNetwork, error) {
	c.mu.Lock()
	defer c.mu.Unlock()

	return c.network, nil
}

func (c *fakeCluster) gpuCluster(context.Context, string, string) (gpuCluster, error) {
	c.mu.Lock()
	defer c.mu.Unlock()

	return c.gpus, c.gpusErr
}

func (c *fakeCluster) ready(_ context.Context, address string) error {
	c.mu.Lock()
	defer c.mu.Unlock()

	return c.apiDown[address]
}

func (c *fakeCluster) nodes(_ context.Context, address string) ([]kubeNode, error) {
	c.mu.Lock()
	defer c.mu.Unlock()

	if err := c.apiDown[address]; err != nil {
		return nil, err
	}

	return c.nodesL, c.nodesErr
}

// testWorkers are those of the cluster of the tests.
func testWorkers() []node {
	return []node{{Name: "w-1", Address: "127.0.9.4"}, {Name: "w-2", Address: "127.0.9.5"}}
}
