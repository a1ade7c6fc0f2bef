package datacentre

import (
	"context"
	"time"
)

// Clock makes modelled time pass: a speed of 10 lets ten modelled seconds pass in one real second.
type Clock struct{ speed float64 }

// NewClock returns a clock of the given speed; a speed of 0 or less is taken as 1.
func NewClock(speed float64) Clock {
	if speed <= 0 {
		speed = 1
	}

	return Clock{speed: speed}
}

// Speed returns how many modelled seconds pass in a real one.
func (c Clock) Speed() float64 { return c.speed }

// Real returns how long the modelled duration takes on the wall.
func (c Clock) Real(d time.Duration) time.Duration { return time.Duration(float64(d) / c.speed) }

// Sleep waits for the modelled duration, or until the context ends, whose error it returns.
func (c Clock) Sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(c.Real(d))
	defer timer.Stop()

	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
