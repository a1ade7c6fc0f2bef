package report

import (
	"bytes"
	_ "embed"
	"fmt"
	"html/template"
	"strings"

	"talos-proxmox/internal/spec"
)

//go:embed page.html
var pageText string

var page = template.Must(
	template.New("page").Funcs(template.FuncMap{"join": strings.Join, "picture": picture, "short": short}).Parse(pageText),
)

// HTML returns the report as one page that needs nothing else: style and picture are in it.
func HTML(p *spec.Plan) ([]byte, error) {
	var b bytes.Buffer
	if err := page.Execute(&b, arrange(p)); err != nil {
		return nil, fmt.Errorf("unable to write the report of stack %q: %w", p.Stack, err)
	}

	return b.Bytes(), nil
}

// SVG returns the page's picture as a file of its own.
func SVG(p *spec.Plan) ([]byte, error) {
	var b bytes.Buffer
	if err := page.ExecuteTemplate(&b, "file", picture(arrange(p))); err != nil {
		return nil, fmt.Errorf("unable to draw stack %q: %w", p.Stack, err)
	}

	return b.Bytes(), nil
}

// Sizes in the picture, in its own units.
const (
	hostWidth     = 240
	gap           = 20
	headHeight    = 74
	machineHeight = 74
	apiHeight     = 40
	barWidth      = hostWidth - 2*gap
)

// drawing is the picture: where the clusters' APIs answer, and below it hosts side by side, at most four in a row, each
// as tall as its row's fullest.
type drawing struct {
	Width, Height int
	Clusters      []strip
	Hosts         []box
}

// Strip is how wide a cluster is drawn.
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
	const most = 4

	d := drawing{Width: gap + max(min(len(v.Hosts), most), 1)*(hostWidth+gap), Height: gap}
	for _, c := range v.Clusters {
		d.Clusters = append(d.Clusters, strip{cluster: c, Y: d.Height})
		d.Height += apiHeight + gap
	}

	for first := 0; first < len(v.Hosts); first += most {
		row := v.Hosts[first:min(first+most, len(v.Hosts))]

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

// Bar is how long the bar of used memory is.
func (b box) Bar() int { return min(b.Memory.Percent(), 100) * barWidth / 100 }

// short cuts a text to what fits in a box; the whole is in the box's title and in the tables.
func short(text string, most int) string {
	runes := []rune(text)
	if len(runes) <= most {
		return text
	}

	return string(runes[:most-1]) + "…"
}
