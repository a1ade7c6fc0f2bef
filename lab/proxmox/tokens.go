package proxmox

import (
	"strings"

	"github.com/google/uuid"

	"talos-proxmox/lab/datacentre"
)

const tokenID = "{userid}!{tokenid}"

func namedToken(r *request) (datacentre.Token, error) {
	if _, err := namedUser(r); err != nil {
		return datacentre.Token{}, err
	}

	return named((*datacentre.Datacentre).Tokens, tokenID, "no such token '{tokenid}' for user '{userid}'")(r)
}

func tokenInfo(t datacentre.Token) object {
	o := object{"privsep": flag(t.Separated), "expire": t.Expire}
	add(o, "comment", t.Comment)

	return o
}

func tokensOf(r *request, user string) []object {
	return rows(ordered(r.dc.Tokens()), func(t datacentre.Token) object {
		name, ok := strings.CutPrefix(t.ID, user+"!")
		if !ok {
			return nil
		}

		o := tokenInfo(t)
		o["tokenid"] = name

		return o
	})
}

func getToken(_ *request, t datacentre.Token) (any, error) { return tokenInfo(t), nil }

func listTokens(r *request, u datacentre.User) (any, error) { return tokensOf(r, u.ID), nil }

// echo writes numbers of an answer as the call wrote them: in text, as PVE does after a change.
func (r *request) echo(o object) object {
	for k := range o {
		if r.params.Has(k) {
			o[k] = r.params[k]
		}
	}

	return o
}

func fillToken(r *request, t datacentre.Token) (datacentre.Token, error) {
	if r.params.Has("comment") {
		t.Comment = r.params["comment"]
	}

	if r.params.Has("privsep") {
		t.Separated = r.params.Bool("privsep")
	}

	t.Expire = int64(r.params.Number("expire", int(t.Expire)))

	for _, name := range r.params.List("delete") {
		if name != "comment" {
			return t, datacentre.Refuse("updating token info failed: 400 Parameter verification failed.")
		}

		t.Comment = ""
	}

	return t, nil
}

func postToken(r *request, _ datacentre.User) (any, error) {
	id := r.fill(tokenID)
	if _, exists := r.dc.Tokens()[id]; exists {
		return nil, datacentre.WrongParameter("tokenid", "Token already exists.")
	}

	t, err := fillToken(r, datacentre.Token{ID: id, Separated: true, Secret: uuid.NewString()})
	if err != nil {
		return nil, err
	}

	r.dc.PutToken(t)

	info := r.echo(tokenInfo(t))
	if !r.params.Has("expire") {
		delete(info, "expire")
	}

	return object{"full-tokenid": id, "value": t.Secret, "info": info}, nil
}

func putToken(r *request, t datacentre.Token) (any, error) {
	t, err := fillToken(r, t)
	if err != nil {
		return nil, err
	}

	r.dc.PutToken(t)

	return r.echo(tokenInfo(t)), nil
}
