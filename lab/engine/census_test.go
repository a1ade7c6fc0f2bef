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
	clientconfig "github.com/siderolabs/talos/pkg/machinery/client/config"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"

	"talos-proxmox/stacks"
)

// majority is how many members of etcd decide.
func majority(members int) int { return members/2 + 1 }

const (
	censusPause = 200 * time.Millisecond
	// unanswered is for how many counts in a row a majority has to be silent before etcd counts as lost: a count asks
	// one member after the other.
	unanswered = 3
)

// census counts the voters of a cluster's etcd, and those of them that run, while something changes.
type census struct {
	w      *world
	end    context.CancelFunc
	ended  sync.WaitGroup
	counts int
	asked  atomic.Int64 // calls of the Talos API that were answered
	// steps are the numbers of voters in order.
	steps []int
	// silent is how many counts in a row found no majority that runs, and longest the most of them.
	silent, longest int
	said            string
}

// voter is a voting member as one of them lists it.
type voter struct {
	id      uint64
	address string
}

// count begins to count the voters among these control planes.
func (w *world) count(addresses []string) *census {
	w.t.Helper()

	config, err := clientconfig.FromString(output(w.test(), w.outputs(), stacks.Talosconfigs, "one"))
	require.NoError(w.t, err)

	clients := map[string]*talosclient.Client{}

	for _, address := range addresses {
		clients[address], err = talosclient.New(w.t.Context(), talosclient.WithConfig(config),
			talosclient.WithEndpoints(address), talosclient.WithGRPCDialOptions(grpc.WithNoProxy()))
		require.NoError(w.t, err)
	}

	ctx, end := context.WithCancel(w.t.Context())
	c := &census{w: w, end: end}

	c.ended.Go(func() {
		for ctx.Err() == nil {
			c.take(ctx, clients, addresses)
			time.Sleep(censusPause)
		}

		for _, client := range clients {
			_ = client.Close()
		}
	})

	return c
}

func (c *census) take(ctx context.Context, clients map[string]*talosclient.Client, addresses []string) {
	before := c.votersOf(ctx, clients, addresses)
	if len(before) == 0 {
		return // no one answers now: a count before or after tells
	}

	running := 0

	var dead []string

	for _, v := range before {
		if err := runs(ctx, clients[v.address], v.id); err == nil {
			c.asked.Add(1)

			running++
		} else {
			dead = append(dead, fmt.Sprintf("%s: %s", v.address, err))
		}
	}

	if after := c.votersOf(ctx, clients, addresses); ctx.Err() != nil || !slices.Equal(before, after) {
		return
	}

	c.counts++

	if n := len(before); len(c.steps) == 0 || c.steps[len(c.steps)-1] != n {
		c.steps = append(c.steps, n)
	}

	if c.silent++; running >= majority(len(before)) {
		c.silent = 0
	}

	if c.silent > c.longest {
		c.longest, c.said = c.silent, fmt.Sprintf("%d of %d voters run: %s", running, len(before), strings.Join(dead, "; "))
	}
}

// votersOf asks the first control plane that answers.
func (c *census) votersOf(
	ctx context.Context, clients map[string]*talosclient.Client, addresses []string,
) (voters []voter) {
	for _, address := range addresses {
		limited, cancel := context.WithTimeout(ctx, time.Second)
		answer, err := clients[address].EtcdMemberList(limited, &machineapi.EtcdMemberListRequest{})

		cancel()

		if err != nil {
			continue
		}

		c.asked.Add(1)

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

// runs says whether a member answers for itself.
func runs(ctx context.Context, client *talosclient.Client, id uint64) error {
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

// report ends the census. There were never fewer voters than these; where all machines were powered all the time, a
// majority of them ran.
func (c *census) report(floor int, powered bool) string {
	c.w.t.Helper()
	c.end()
	c.ended.Wait()

	if assert.Positive(c.w.t, c.counts, "no count of the voters") {
		assert.GreaterOrEqual(c.w.t, slices.Min(c.steps), floor, "voters of etcd, one after the other: %v", c.steps)
	}

	for i := range c.steps[min(1, len(c.steps)):] {
		step := c.steps[i+1] - c.steps[i]
		assert.Contains(c.w.t, []int{-1, 1}, step, "voters come and go one by one: %v", c.steps)
	}

	if powered {
		assert.Less(c.w.t, c.longest, unanswered, "%s", c.said)
	}

	return fmt.Sprintf("voters %v in %d counts", c.steps, c.counts)
}
