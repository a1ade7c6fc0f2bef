package engine_test

import (
	"context"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"
	talosclient "github.com/siderolabs/talos/pkg/machinery/client"
	"github.com/stretchr/testify/assert"
)

// majority is the quorum of etcd with this many members.
func majority(members int) int { return members/2 + 1 }

const (
	sampleInterval = 200 * time.Millisecond
	// maxWithoutMajority is after how many samples in a row without a majority etcd counts as lost: a sample asks one
	// member after the other.
	maxWithoutMajority = 3
)

// etcdWatch samples the voters of a cluster's etcd, and which of them run, while something changes.
type etcdWatch struct {
	w        *world
	stop     context.CancelFunc
	stopped  sync.WaitGroup
	samples  int
	requests atomic.Int64 // answered calls of the Talos API
	// voterCounts are the numbers of voters in order.
	voterCounts []int
	// withoutMajority is how many samples in a row found no running majority; longestWithoutMajority is the maximum.
	withoutMajority, longestWithoutMajority int
	longestReason                           string
}

// voter is a voting member in the member list.
type voter struct {
	id      uint64
	address string
}

// watchEtcd begins to sample the voters among these control planes.
func (w *world) watchEtcd(addresses []string) *etcdWatch {
	w.t.Helper()

	clients := map[string]*talosclient.Client{}
	for _, address := range addresses {
		clients[address] = w.talosClient(w.talosconfig(), address)
	}

	ctx, end := context.WithCancel(w.t.Context())
	c := &etcdWatch{w: w, stop: end}

	c.stopped.Go(func() {
		for ctx.Err() == nil {
			c.sample(ctx, clients, addresses)
			time.Sleep(sampleInterval)
		}

		for _, client := range clients {
			_ = client.Close()
		}
	})

	return c
}

func (c *etcdWatch) sample(ctx context.Context, clients map[string]*talosclient.Client, addresses []string) {
	before := c.listVoters(ctx, clients, addresses)
	if len(before) == 0 {
		return // nobody answers: another sample counts
	}

	running := 0

	var dead []string

	for _, v := range before {
		if err := checkMember(ctx, clients[v.address], v.id); err == nil {
			c.requests.Add(1)

			running++
		} else {
			dead = append(dead, fmt.Sprintf("%s: %s", v.address, err))
		}
	}

	if after := c.listVoters(ctx, clients, addresses); ctx.Err() != nil || !slices.Equal(before, after) {
		return
	}

	c.samples++

	if n := len(before); len(c.voterCounts) == 0 || c.voterCounts[len(c.voterCounts)-1] != n {
		c.voterCounts = append(c.voterCounts, n)
	}

	if c.withoutMajority++; running >= majority(len(before)) {
		c.withoutMajority = 0
	}

	if c.withoutMajority > c.longestWithoutMajority {
		c.longestWithoutMajority = c.withoutMajority
		c.longestReason = fmt.Sprintf("%d of %d voters run: %s", running, len(before), strings.Join(dead, "; "))
	}
}

// listVoters asks the first control plane that answers.
func (c *etcdWatch) listVoters(
	ctx context.Context, clients map[string]*talosclient.Client, addresses []string,
) (voters []voter) {
	for _, address := range addresses {
		limited, cancel := context.WithTimeout(ctx, time.Second)
		answer, err := clients[address].EtcdMemberList(limited, &machineapi.EtcdMemberListRequest{})

		cancel()

		if err != nil {
			continue
		}

		c.requests.Add(1)

		for _, m := range answer.GetMessages()[0].GetMembers() {
			if peer, err := url.Parse(m.GetPeerUrls()[0]); err == nil && !m.GetIsLearner() {
				voters = append(voters, voter{m.GetId(), peer.Hostname()})
			}
		}

		slices.SortFunc(voters, func(a, b voter) int { return strings.Compare(a.address, b.address) })

		return voters
	}

	return nil
}

// checkMember returns an error unless a member answers for itself.
func checkMember(ctx context.Context, client *talosclient.Client, id uint64) error {
	if client == nil {
		return fmt.Errorf("member %x is of no control plane", id)
	}

	limited, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()

	answer, err := client.EtcdStatus(limited)
	if err != nil {
		return err
	}

	if now := answer.GetMessages()[0].GetMemberStatus().GetMemberId(); now != id {
		return fmt.Errorf("it is member %x, and %x is listed", now, id)
	}

	return nil
}

// report stops the watch. It checks that there were never fewer voters than floor and, if all machines had power all
// the time, that a majority of them ran.
func (c *etcdWatch) report(floor int, powered bool) string {
	c.w.t.Helper()
	c.stop()
	c.stopped.Wait()

	if assert.Positive(c.w.t, c.samples, "no count of the voters") {
		assert.GreaterOrEqual(c.w.t, slices.Min(c.voterCounts), floor, "voters of etcd in order: %v", c.voterCounts)
	}

	for i := range c.voterCounts[min(1, len(c.voterCounts)):] {
		step := c.voterCounts[i+1] - c.voterCounts[i]
		assert.Contains(c.w.t, []int{-1, 1}, step, "voters come and go one by one: %v", c.voterCounts)
	}

	if powered {
		assert.Less(c.w.t, c.longestWithoutMajority, maxWithoutMajority, "%s", c.longestReason)
	}

	return fmt.Sprintf("voters %v in %d counts", c.voterCounts, c.samples)
}
