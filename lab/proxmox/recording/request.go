package recording

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
)

// response is an undecoded response.
type response struct {
	status int
	reason string
	body   []byte
	Data   any            `json:"data"`
	Errors map[string]any `json:"errors"`
}

// decode decodes the response's data.
func (r response) decode(into any) error {
	answer := struct {
		Data any `json:"data"`
	}{into}

	if err := json.Unmarshal(r.body, &answer); err != nil {
		return fmt.Errorf("unable to read an answer: %w", err)
	}

	return nil
}

func (a *API) send(ctx context.Context, c call) (response, error) {
	req, err := a.request(ctx, c)
	if err != nil {
		return response{}, fmt.Errorf("unable to create the request: %w", err)
	}

	res, err := a.Client.Do(req)

	// An API that refuses chunked bodies closes the connection, sometimes before its response can be read.
	for try := 1; err != nil && c.hasFlag("chunked") && try < 10; try++ {
		if req, err = a.request(ctx, c); err == nil {
			res, err = a.Client.Do(req)
		}
	}

	if err != nil {
		return response{}, err
	}

	defer res.Body.Close() //nolint:errcheck // it is read

	r := response{status: res.StatusCode}
	_, r.reason, _ = strings.Cut(res.Status, " ")

	if r.body, err = io.ReadAll(res.Body); err != nil {
		return r, fmt.Errorf("unable to read the answer: %w", err)
	}

	_ = json.Unmarshal(r.body, &r) //nolint:errcheck // an error need not be JSON

	return r, nil
}

func (a *API) request(ctx context.Context, c call) (*http.Request, error) {
	target := a.Endpoint + "/api2/json" + c.path

	var (
		body io.Reader
		kind string
	)

	switch {
	case c.hasFlag("json"):
		doc := map[string]string{}
		for name := range c.params {
			doc[name] = c.params.Get(name)
		}

		content, err := marshal(doc)
		if err != nil {
			return nil, err
		}

		body, kind = bytes.NewReader(content), "application/json"
	case c.hasFlag("chunked"): // a reader of unknown length
		body, kind = io.MultiReader(strings.NewReader(c.params.Encode())), "application/x-www-form-urlencoded"
	case len(c.params) == 0:
	case c.method == http.MethodGet || c.method == http.MethodDelete:
		target += "?" + c.params.Encode()
	default:
		body, kind = strings.NewReader(c.params.Encode()), "application/x-www-form-urlencoded"
	}

	req, err := http.NewRequestWithContext(ctx, c.method, target, body)
	if err != nil {
		return nil, err
	}

	if kind != "" {
		req.Header.Set("Content-Type", kind)
	}

	return req, a.authenticate(req, c.who)
}

// authenticate sets the credentials of a caller.
func (a *API) authenticate(req *http.Request, who string) error {
	id, _, _ := strings.Cut(a.Token, "=")
	header := map[string]string{
		"": "PVEAPIToken=" + a.Token, "wrong": "PVEAPIToken=" + id + "=00000000-0000-0000-0000-000000000000",
		"malformed": "PVEAPIToken=nobody", "scheme": "Basic bm9ib2R5",
		"unknown": "PVEAPIToken=rec-nobody@pve!few=00000000-0000-0000-0000-000000000000",
	}

	if authorization, ok := header[who]; ok {
		req.Header.Set("Authorization", authorization)

		return nil
	}

	switch who {
	case "none":
	case "badticket":
		req.Header.Set("Cookie", "PVEAuthCookie=PVE:root@pam:00000000::nope")
	case "ticket", "nocsrf":
		req.Header.Set("Cookie", "PVEAuthCookie="+url.PathEscape(a.ticket))

		if who == "ticket" {
			req.Header.Set("CSRFPreventionToken", a.csrf)
		}
	default:
		if a.tokensByName[who] == "" {
			return errors.New("no call created the token " + who)
		}

		req.Header.Set("Authorization", "PVEAPIToken="+a.tokensByName[who])
	}

	return nil
}
