package report

import (
	"bytes"
	"embed"
	"fmt"
	"html/template"
	"strings"

	"talos-proxmox/internal/spec"
)

//go:embed *.html
var templates embed.FS

var page = template.Must(template.New("page.html").Funcs(template.FuncMap{
	"join": strings.Join, "short": shorten, "capped": func(percent int) int { return min(percent, 100) },
}).ParseFS(templates, "*.html"))

// HTML returns the report as a self-contained page with style and picture.
func HTML(p *spec.Plan) ([]byte, error) {
	var b bytes.Buffer
	if err := page.Execute(&b, newView(p)); err != nil {
		return nil, fmt.Errorf("unable to write the report of stack %q: %w", p.Stack, err)
	}

	return b.Bytes(), nil
}
