package preflight

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"talos-proxmox/internal/spec"
	"talos-proxmox/internal/talos"
)

// apiTimeout bounds the requests about one endpoint.
const apiTimeout = 5 * time.Second

// API is the endpoint of a cluster's Kubernetes API, as this computer reaches it.
type API struct {
	// Addresses of its host; Unresolved is why there are none.
	Addresses  []netip.Addr
	Unresolved error
	// Unanswered is why addresses that no control plane has do not accept connections.
	Unanswered error
}

// readAPIs resolves the endpoints that are no address of their cluster, and connects to those of load balancers.
func (r *reader) readAPIs(ctx context.Context) {
	var wg sync.WaitGroup

	for _, c := range r.Plan.Clusters {
		host, _ := c.EndpointAddress()
		if address, err := netip.ParseAddr(host); err == nil && c.ServesAPI(address) {
			continue
		}

		wg.Go(func() {
			api := r.readAPI(ctx, c)
			r.record("", nil, func(s *Site) { s.APIs[c.Name] = api })
		})
	}

	wg.Wait()
}

func (r *reader) readAPI(ctx context.Context, c spec.Cluster) (api API) {
	ctx, cancel := context.WithTimeout(ctx, apiTimeout)
	defer cancel()

	lookup := r.Lookup
	if lookup == nil {
		lookup = net.DefaultResolver.LookupNetIP
	}

	host, port := c.EndpointAddress()

	api.Addresses, api.Unresolved = lookup(ctx, "ip", host)
	for i, address := range api.Addresses {
		if api.Addresses[i] = address.Unmap(); c.ServesAPI(api.Addresses[i]) {
			continue
		}

		connection, err := (&net.Dialer{}).DialContext(ctx, "tcp", net.JoinHostPort(address.String(), port))
		if err == nil {
			err = connection.Close()
		}

		api.Unanswered = errors.Join(api.Unanswered, err)
	}

	slices.SortFunc(api.Addresses, netip.Addr.Compare)

	return api
}

// checkAPIs checks the endpoints of the clusters' Kubernetes APIs. Everything is a warning: neither a run nor the nodes
// need the endpoint, only its users do.
func (c *checker) checkAPIs() {
	for _, cluster := range c.plan.Clusters {
		if api, asked := c.site.APIs[cluster.Name]; asked {
			c.checkAPI(cluster, api)
		}
	}
}

func (c *checker) checkAPI(cluster spec.Cluster, api API) {
	const unneeded = "; up and the machines do not need it, but kubectl does"

	host, port := cluster.EndpointAddress()
	at := cluster.ControlPlanes[0].Parent() + ".endpoint"
	records := "make DNS records for " + apiAddresses(cluster)

	if api.Unresolved != nil {
		c.warn("", at+".host", host, "does not resolve here%s: %s, or for your load balancer: %s", unneeded, records,
			api.Unresolved)

		return
	}

	var own, other []string

	for _, address := range api.Addresses {
		i := slices.IndexFunc(c.planned.machines, func(m machine) bool { return m.Address.Addr() == address })

		switch {
		case cluster.ServesAPI(address):
			own = append(own, address.String())
		case i >= 0 && c.planned.machines[i].Of != nil:
			c.warn("", at+".host", host, "resolves to %s, and %s does not serve this API%s: %s", address,
				c.planned.machines[i].Name, unneeded, records)

			return
		default:
			other = append(other, address.String())
		}
	}

	switch shown := strings.Join(slices.Concat(own, other), ", "); {
	case len(own) > 0 && port != strconv.Itoa(talos.APIPort):
		c.warn("", at+".port", port, "is a load balancer's, and %s resolves to %s, which serve the API on %d%s: leave port "+
			"out, or make DNS records for the load balancer", host, strings.Join(own, ", "), talos.APIPort, unneeded)
	case api.Unanswered != nil:
		c.warn("", at+".host", host, "is at %s, where nothing answers on port %s%s: start the load balancer there, or "+
			"%s: %s", strings.Join(other, ", "), port, unneeded, records, flat(api.Unanswered))
	case len(other) > 0:
		c.fine("", "the endpoint of %s answers at %s", cluster.Name, shown)
	default:
		c.fine("", "the endpoint of %s is at %s", cluster.Name, shown)
	}
}

// apiAddresses names the addresses at which the machines of a cluster serve its API.
func apiAddresses(c spec.Cluster) string {
	if c.VIP.IsValid() {
		return fmt.Sprintf("the VIP %s", c.VIP)
	}

	return "the control planes " + strings.Join(c.ControlPlaneAddresses(), ", ")
}

// flat returns a joined error in one line.
func flat(err error) string { return strings.ReplaceAll(err.Error(), "\n", "; ") }
