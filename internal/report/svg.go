package report

import (
	"bytes"
	"fmt"

	"talos-proxmox/internal/spec"
)

// SVG returns a picture of hosts and machines as a file, for documents: it has less than the page's, at one width.
func SVG(p *spec.Plan) ([]byte, error) {
	var b bytes.Buffer
	if err := page.ExecuteTemplate(&b, "file", picture(newView(p))); err != nil {
		return nil, fmt.Errorf("unable to draw stack %q: %w", p.Stack, err)
	}

	return b.Bytes(), nil
}

// Sizes in the picture, in SVG units.
const (
	hostWidth     = 240
	gap           = 20
	headHeight    = 74
	machineHeight = 74
	apiHeight     = 40
	barWidth      = hostWidth - 2*gap
)

// drawing is the layout of the picture: the clusters' API endpoints, and below them the hosts, at most four in a row,
// with the height of the fullest host in the row.
type drawing struct {
	Width, Height int
	Clusters      []strip
	Hosts         []box
}

// Strip returns the width of a cluster.
func (d drawing) Strip() int { return d.Width - 2*gap }

type strip struct {
	cluster
	Y int
}

type box struct {
	host
	X, Y, Height int
	Slots        []slot
}

type slot struct {
	machine
	Y int
}

func picture(v view) drawing {
	const hostsPerRow = 4

	d := drawing{Width: gap + max(min(len(v.Hosts), hostsPerRow), 1)*(hostWidth+gap), Height: gap}
	for _, c := range v.Clusters {
		d.Clusters = append(d.Clusters, strip{cluster: c, Y: d.Height})
		d.Height += apiHeight + gap
	}

	for first := 0; first < len(v.Hosts); first += hostsPerRow {
		row := v.Hosts[first:min(first+hostsPerRow, len(v.Hosts))]

		height := 0
		for _, h := range row {
			height = max(height, headHeight+max(len(h.Machines), 1)*machineHeight)
		}

		for i, h := range row {
			b := box{host: h, X: gap + i*(hostWidth+gap), Y: d.Height, Height: height}
			for j, m := range h.Machines {
				b.Slots = append(b.Slots, slot{machine: m, Y: headHeight + j*machineHeight})
			}

			d.Hosts = append(d.Hosts, b)
		}

		d.Height += height + gap
	}

	return d
}

// Bar returns the length of the bar of used memory.
func (b box) Bar() int { return min(b.Memory.Percent(), 100) * barWidth / 100 }

// shorten truncates a text to fit in a box; the box's title and the tables have the whole text.
func shorten(text string, most int) string {
	runes := []rune(text)
	if len(runes) <= most {
		return text
	}

	return string(runes[:most-1]) + "…"
}
