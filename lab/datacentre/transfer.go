package datacentre

import (
	"context"
	"slices"
	"time"
)

// longestWait is for how long a copy waits for others at most.
const longestWait = 1000 * time.Hour

// copyBytes lets as much modelled time pass as copying so many bytes from and to the storages takes. A storage copies
// one thing after the other, which takes as long as all of them at once would.
func (d *Datacentre) copyBytes(ctx context.Context, bytes int64, over ...*Storage) error {
	var keys []string
	for _, s := range over {
		keys = append(keys, s.key())
	}

	slices.Sort(keys)

	for _, key := range slices.Compact(keys) {
		unlock, err := d.acquire(ctx, "copy/"+key, exclusive, longestWait)
		if err != nil {
			return err
		}
		defer unlock()
	}

	speed := float64(d.options.Durations.StorageThroughput)
	if speed == 0 {
		return d.sleep(ctx, 0)
	}

	return d.sleep(ctx, time.Duration(float64(bytes)/speed*float64(time.Second)))
}
