package elastic

import (
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/elastic/elastic-transport-go/v8/elastictransport"
	"github.com/elastic/go-elasticsearch/v8/esapi"
	"golang.org/x/sync/errgroup"

	"github.com/muster-fleet/muster/server/fleet"
)

// DefaultPrefix begins the names of all indices.
const DefaultPrefix = "muster-"

const (
	// dialTimeout bounds connecting to a node, with its TLS handshake: one that is
	// gone without a word is left for the next.
	dialTimeout = 5 * time.Second
	// maxConns bounds the connections to a node. Each replica has some hundred calls
	// at once in its worst second, and a node does not get faster by more.
	maxConns = 64
	// openTogether bounds the requests Open has under way: each is a change of the
	// cluster's state, which the master makes one after the other.
	openTogether = 6
)

// keepAlive finds out within callTimeout that the other end is gone without a
// word. The system's own takes minutes.
var keepAlive = net.KeepAliveConfig{Enable: true, Idle: 4 * time.Second, Interval: 2 * time.Second, Count: 3}

// Options of Open. URLs are required; at most one of Username, APIKey and
// ServiceToken may be given.
type Options struct {
	// URLs of nodes, or of what stands before them; no credentials in them.
	URLs []string
	// Prefix of the names of indices; empty: DefaultPrefix.
	Prefix string

	Username, Password string // basic authentication
	APIKey             string // base64(id:key), as Elasticsearch hands it out
	ServiceToken       string

	CACert            []byte           // PEM of authorities to trust besides; nil: the system's
	CAFingerprint     string           // SHA-256 of the authority's certificate, in hexadecimal
	ClientCertificate *tls.Certificate // shown to the nodes

	// Loading opens a store, too, that a migration which is not finished fills.
	Loading bool
}

// fingerprintPattern is a SHA-256 in hexadecimal.
var fingerprintPattern = regexp.MustCompile(`^[0-9a-f]{64}$`)

// tlsConfig says whom to trust and what to show. The library's own way would not
// show a certificate where there is a fingerprint, and would trust whoever sends
// the authority's certificate along, without having been signed by it.
func tlsConfig(opts Options) (*tls.Config, error) {
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	if opts.ClientCertificate != nil {
		config.Certificates = []tls.Certificate{*opts.ClientCertificate}
	}
	if opts.CACert != nil {
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(opts.CACert) {
			return nil, errors.New("elasticsearch: the file of the authority has no certificate in PEM: name another")
		}
	}
	if opts.CAFingerprint == "" {
		return config, nil
	}
	want := strings.ToLower(strings.ReplaceAll(opts.CAFingerprint, ":", ""))
	if !fingerprintPattern.MatchString(want) {
		return nil, errors.New("elasticsearch: the fingerprint is not a SHA-256 in hexadecimal: use what Elasticsearch printed when it was set up")
	}
	// Verified below, with the authority out of what the node sends.
	config.InsecureSkipVerify = true
	config.VerifyConnection = func(s tls.ConnectionState) error {
		verify := x509.VerifyOptions{DNSName: s.ServerName, Roots: x509.NewCertPool(), Intermediates: x509.NewCertPool()}
		found := false
		for _, c := range s.PeerCertificates {
			if sum := sha256.Sum256(c.Raw); hex.EncodeToString(sum[:]) == want {
				verify.Roots.AddCert(c)
				found = true
				continue
			}
			verify.Intermediates.AddCert(c)
		}
		if !found {
			return errors.New("no certificate of the node has the fingerprint that is trusted")
		}
		_, err := s.PeerCertificates[0].Verify(verify)
		return err
	}
	return config, nil
}

// prefixPattern is what the names of indices may begin with.
var prefixPattern = regexp.MustCompile(`^[a-z0-9][a-z0-9._-]{0,99}$`)

func (o Options) check() ([]*url.URL, error) {
	if len(o.URLs) == 0 {
		return nil, errors.New("elasticsearch: no URL is given: name at least one node, such as https://es1.example:9200")
	}
	var urls []*url.URL
	for _, s := range o.URLs {
		u, err := url.Parse(s)
		if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
			return nil, errors.New("elasticsearch: a URL is not of the form https://host:9200: correct it")
		}
		if u.User != nil {
			return nil, fmt.Errorf("elasticsearch: the URL of %s has credentials in it: give them apart, from a file or the environment", u.Host)
		}
		urls = append(urls, u)
	}
	given := 0
	for _, s := range []string{o.Username, o.APIKey, o.ServiceToken} {
		if s != "" {
			given++
		}
	}
	if given > 1 {
		return nil, errors.New("elasticsearch: more than one of user name, API key and service token is given: give one")
	}
	if (o.Username == "") != (o.Password == "") {
		return nil, errors.New("elasticsearch: of user name and password one is given alone: give both")
	}
	if !prefixPattern.MatchString(o.Prefix) {
		return nil, fmt.Errorf("elasticsearch: the prefix %q cannot begin the name of an index: use lower-case letters, digits, - and _", o.Prefix)
	}
	return urls, nil
}

// Open connects, and makes the indices or brings them up to date. Indices of a
// newer Muster are left as they are, with an error.
func Open(ctx context.Context, opts Options) (*Store, error) {
	c, err := connect(opts)
	if err != nil {
		return nil, err
	}
	s := &Store{c: c, actionOrder: newOrder(c, indexActions), eventOrder: newOrder(c, indexEvents)}
	if err = c.prepare(ctx); err == nil && !opts.Loading {
		err = s.refuseUnfinished(ctx)
	}
	if err != nil {
		c.close()
		return nil, err
	}
	return s, nil
}

func connect(opts Options) (*client, error) {
	if opts.Prefix == "" {
		opts.Prefix = DefaultPrefix
	}
	urls, err := opts.check()
	if err != nil {
		return nil, err
	}
	network := &http.Transport{
		Proxy:               http.ProxyFromEnvironment,
		DialContext:         (&net.Dialer{Timeout: dialTimeout, KeepAliveConfig: keepAlive}).DialContext,
		TLSHandshakeTimeout: dialTimeout,
		MaxConnsPerHost:     maxConns,
		MaxIdleConnsPerHost: maxConns,
		// Shorter than what proxies and firewalls allow an idle connection.
		IdleConnTimeout: 50 * time.Second,
	}
	if network.TLSClientConfig, err = tlsConfig(opts); err != nil {
		return nil, err
	}
	how := []elastictransport.Option{
		elastictransport.WithUserAgent("muster"), elastictransport.WithURLs(urls...), elastictransport.WithTransport(network),
		// client.do knows what may be sent again.
		elastictransport.WithDisableRetry(),
	}
	switch {
	case opts.Username != "":
		how = append(how, elastictransport.WithBasicAuth(opts.Username, opts.Password))
	case opts.ServiceToken != "":
		how = append(how, elastictransport.WithServiceToken(opts.ServiceToken))
	case opts.APIKey != "":
		// The library spells it APIKey, which Elasticsearch takes, but not every proxy.
		how = append(how, elastictransport.WithHeader(http.Header{"Authorization": {"ApiKey " + opts.APIKey}}))
	}
	transport, err := elastictransport.NewClient(how...)
	if err != nil {
		return nil, fmt.Errorf("elasticsearch: the connection cannot be set up: %w", err)
	}
	return newClient(transport, network, len(urls), opts.Prefix), nil
}

// prepare makes all indices as this version wants them.
func (c *client) prepare(ctx context.Context) error {
	versions, err := c.versions(ctx)
	if err != nil {
		return err
	}
	for index, v := range versions {
		if v > schemaVersion {
			return fleet.Errorf(fleet.Internal, "the index %s was made by a newer Muster (schema %d, this program knows up to %d): run that version or a later one; nothing has been changed", c.name(index), v, schemaVersion)
		}
	}
	all, ctx := errgroup.WithContext(ctx)
	all.SetLimit(openTogether)
	for _, index := range slices.Sorted(maps.Keys(schemas)) {
		if v, there := versions[index]; there && v == schemaVersion {
			continue
		}
		all.Go(func() error {
			// The template first: should an index be lost, it comes back right.
			if err := c.putTemplate(ctx, index); err != nil {
				return err
			}
			if _, there := versions[index]; there {
				return c.putMapping(ctx, index)
			}
			return c.createIndex(ctx, index)
		})
	}
	return all.Wait()
}

// versions are those of the indices that are there.
func (c *client) versions(ctx context.Context) (map[string]int, error) {
	var names []string
	for index := range schemas {
		names = append(names, c.name(index))
	}
	yes := true
	var answer map[string]struct {
		Mappings struct {
			Meta struct {
				Version *int `json:"muster_schema"`
			} `json:"_meta"`
		} `json:"mappings"`
	}
	err := c.do(ctx, call{op: "look at the indices", timeout: bulkTimeout, repeatable: true, request: func() esapi.Request {
		return esapi.IndicesGetMappingRequest{Index: names, IgnoreUnavailable: &yes, MasterTimeout: masterTimeout}
	}}, &answer)
	if err != nil {
		return nil, err
	}
	out := map[string]int{}
	for index := range schemas {
		found, ok := answer[c.name(index)]
		if !ok {
			continue
		}
		if found.Mappings.Meta.Version == nil {
			return nil, fleet.Errorf(fleet.Internal, "the index %s was not made by Muster: choose another prefix, or remove it", c.name(index))
		}
		out[index] = *found.Mappings.Meta.Version
	}
	return out, nil
}

func (c *client) putTemplate(ctx context.Context, index string) error {
	return c.setUp(ctx, "put the template "+c.name(index), body{
		"index_patterns": []string{c.name(index)},
		// Above what people make for all their indices.
		"priority": 500,
		"version":  schemaVersion,
		"_meta":    body{"managed_by": "muster", "muster_schema": schemaVersion},
		"template": body{"settings": indexSettings(), "mappings": mappings(index, schemaVersion)},
	}, func(r *bytes.Reader) esapi.Request {
		return esapi.IndicesPutIndexTemplateRequest{Name: c.name(index), Body: r, MasterTimeout: masterTimeout}
	})
}

func (c *client) putMapping(ctx context.Context, index string) error {
	return c.setUp(ctx, "bring the index "+c.name(index)+" up to date", mappings(index, schemaVersion), func(r *bytes.Reader) esapi.Request {
		return esapi.IndicesPutMappingRequest{Index: []string{c.name(index)}, Body: r, MasterTimeout: masterTimeout, Timeout: masterTimeout}
	})
}

func (c *client) createIndex(ctx context.Context, index string) error {
	err := c.setUp(ctx, "create the index "+c.name(index), body{}, func(r *bytes.Reader) esapi.Request {
		return esapi.IndicesCreateRequest{Index: c.name(index), Body: r, MasterTimeout: masterTimeout, Timeout: masterTimeout}
	})
	var refused *refusal
	if errors.As(err, &refused) && refused.kind == "resource_already_exists_exception" {
		return nil // another replica was first
	}
	return err
}

// setUp sends a request that may be repeated, since it says how something shall be.
func (c *client) setUp(ctx context.Context, op string, b body, request func(*bytes.Reader) esapi.Request) error {
	encoded, err := json.Marshal(b)
	if err != nil {
		return fmt.Errorf("%s: %w", op, err)
	}
	return c.do(ctx, call{op: op, timeout: bulkTimeout, repeatable: true, request: func() esapi.Request {
		return request(bytes.NewReader(encoded))
	}}, nil)
}
