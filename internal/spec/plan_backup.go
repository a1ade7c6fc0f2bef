package spec

import (
	"fmt"
	"net/url"
	"regexp"
	"slices"
	"strings"
)

// planBackup checks the public keys of backups and the bucket of copies.
func (p *planner) planBackup() Backup {
	c := p.config.Backup
	for _, list := range []struct {
		field string
		keys  []string
	}{{"recipients", c.Recipients}, {"secretsRecipients", c.SecretsRecipients}} {
		for i, key := range list.keys {
			path := fmt.Sprintf("backup.%s[%d]", list.field, i)
			if slices.Index(list.keys, key) < i {
				p.problems.Add(path, key, "is in the list already; remove one of the two")
			}

			if p.options.CheckRecipient == nil {
				continue
			}

			if err := p.options.CheckRecipient(key); err != nil {
				p.problems.Add(path, nil, "%v", err)
			}
		}
	}

	for i, key := range c.SecretsRecipients {
		if slices.Contains(c.Recipients, key) {
			p.warn("backup.secretsRecipients[%d]: this key opens snapshots of etcd, too: whoever has its private key can read every Secret of a cluster; "+
				"use another person's key", i)
		}
	}

	c.S3 = p.planS3(c)

	return c
}

var (
	bucketFormat = format{
		regexp.MustCompile(`^[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]$`),
		"is not the name of a bucket; write 3 to 63 lower-case letters, digits, dots and hyphens",
	}
	prefixFormat = format{
		regexp.MustCompile(`^[A-Za-z0-9_-][A-Za-z0-9_.-]*(/[A-Za-z0-9_-][A-Za-z0-9_.-]*)*$`),
		"is not a prefix of names; write words with slashes between them, as talos/prod",
	}
)

// planS3 checks the bucket of second copies of snapshots; nil = none.
func (p *planner) planS3(c Backup) *S3 {
	if c.S3 == nil {
		return nil
	}

	const at = "backup.s3"

	s := *c.S3
	s.Endpoint, s.Prefix = strings.TrimSuffix(s.Endpoint, "/"), strings.Trim(s.Prefix, "/")

	p.checkFormat(at+".bucket", s.Bucket, bucketFormat)
	p.checkFormat(at+".prefix", s.Prefix, prefixFormat)

	if !p.problems.Has(at + ".endpoint") {
		p.checkEndpoint(at+".endpoint", s.Endpoint)
	}

	if (s.AccessKey == "") != (s.SecretKey == "") {
		p.problems.Add(at, nil, "has one of accessKey and secretKey; set both, or neither and AWS_ACCESS_KEY_ID and "+
			"AWS_SECRET_ACCESS_KEY in the environment")
	}

	p.checkEncrypted(at+".secretKey", s.SecretKey)

	if len(c.Recipients) == 0 {
		p.addMissing("backup.recipients", "is missing, so there are no snapshots to store in backup.s3; "+
			"set the public key of a pair that age-keygen generated")
	}

	return &s
}

// checkEndpoint checks the URL of a server that receives credentials.
func (p *planner) checkEndpoint(at, text string) {
	endpoint, err := url.Parse(text)
	if err != nil || endpoint.Host == "" || endpoint.Path != "" || endpoint.RawQuery != "" || endpoint.User != nil {
		p.problems.Add(at, nil, "is not the address of a server; write it as https://s3.eu-central-1.amazonaws.com or "+
			"https://minio.example.com:9000, without a path and without credentials")

		return
	}

	if !isEncrypted(endpoint) {
		p.problems.Add(at, text, "is not encrypted; use https:// (http:// is accepted only on 127.0.0.0/8)")
	}
}
