package localdeps

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
)

//go:embed dynalite/package.json dynalite/package-lock.json
var dynalite embed.FS

// DynamoDB is a running stand-in.
type DynamoDB struct {
	Endpoint string        // a URL
	child    *childProcess // nil when it is not ours
}

// serveDynalite prints its port and ends with its standard input. dynalite
// throws when a client breaks off a request, which clients do.
const serveDynalite = `
const server = require('dynalite')({createTableMs: 0, deleteTableMs: 0, updateTableMs: 0});
server.listen(0, '127.0.0.1', () => console.log('port ' + server.address().port + ';'));
process.on('uncaughtException', err => {
  if (err.code === 'ECONNRESET' || err.code === 'EPIPE') return;
  console.error(err);
  process.exit(1);
});
process.stdin.on('end', () => process.exit(0)).resume();
`

// StartDynamoDB takes the service at DYNAMODB_ENDPOINT, or starts dynalite,
// which is installed into the user's cache folder the first time. ctx bounds
// the start. The caller calls Close.
func StartDynamoDB(ctx context.Context) (*DynamoDB, error) {
	if endpoint := os.Getenv("DYNAMODB_ENDPOINT"); endpoint != "" {
		return &DynamoDB{Endpoint: endpoint}, nil
	}
	node, err := exec.LookPath("node")
	if err != nil {
		return nil, errors.New("localdeps: Node is not installed: apt-get install -y nodejs npm, or set DYNAMODB_ENDPOINT")
	}
	dir, err := installDynalite(ctx)
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(node, "-e", serveDynalite) //nolint:noctx // it outlives ctx, Close ends it
	cmd.Dir = dir
	c, err := startChild(cmd)
	if err != nil {
		return nil, err
	}
	d := &DynamoDB{child: c}
	err = c.waitReady(20*time.Second, func() error {
		_, rest, _ := strings.Cut(c.log.String(), "port ")
		port, _, complete := strings.Cut(rest, ";")
		if !complete {
			return errors.New("no port yet")
		}
		d.Endpoint = "http://127.0.0.1:" + port
		return nil
	})
	if err != nil {
		d.Close()
		return nil, fmt.Errorf("localdeps: dynalite: %w", err)
	}
	return d, nil
}

// Close ends the stand-in and all that is stored in it. A service that was
// there before is left as it is.
func (d *DynamoDB) Close() {
	if d.child != nil {
		d.child.close()
	}
}

// Ended is closed when the stand-in has ended by itself or by Close; Log tells
// the end of what it printed. A service that was there before never ends.
func (d *DynamoDB) Ended() <-chan struct{} {
	if d.child == nil {
		return nil
	}
	return d.child.ended
}

// Log is empty for a service that was there before.
func (d *DynamoDB) Log() string {
	if d.child == nil {
		return ""
	}
	return d.child.log.String()
}

// Client is a client of the stand-in.
func (d *DynamoDB) Client() *dynamodb.Client { return ClientFor(d.Endpoint) }

// ClientFor is a client of a stand-in, or of a Proxy in front of one.
func ClientFor(endpoint string) *dynamodb.Client {
	return dynamodb.New(dynamodb.Options{
		BaseEndpoint: &endpoint,
		Region:       "us-east-1",
		Credentials:  aws.NewCredentialsCache(credentials.NewStaticCredentialsProvider("local", "local", "")),
	})
}

// installDynalite returns a folder in which dynalite is installed. Folders of
// different lockfiles live side by side; a half installed one is not used,
// since it gets its name last.
func installDynalite(ctx context.Context) (string, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		cache = os.TempDir()
	}
	parent := filepath.Join(cache, "flightpool-localdeps")
	dir := filepath.Join(parent, "dynalite-4.0.0")
	if _, err := os.Stat(filepath.Join(dir, "node_modules", "dynalite")); err == nil {
		return dir, nil
	}
	npm, err := exec.LookPath("npm")
	if err != nil {
		return "", errors.New("localdeps: npm is not installed: apt-get install -y nodejs npm, or set DYNAMODB_ENDPOINT")
	}
	if err := os.MkdirAll(parent, 0o755); err != nil {
		return "", err
	}
	fresh, err := os.MkdirTemp(parent, "install-")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(fresh) //nolint:errcheck // left over only when it was not renamed
	for _, name := range []string{"package.json", "package-lock.json"} {
		content, err := dynalite.ReadFile("dynalite/" + name)
		if err != nil {
			return "", err
		}
		if err := os.WriteFile(filepath.Join(fresh, name), content, 0o644); err != nil {
			return "", err
		}
	}
	install := exec.CommandContext(ctx, npm, "ci", "--ignore-scripts", "--no-audit", "--no-fund")
	install.Dir = fresh
	if out, err := install.CombinedOutput(); err != nil {
		return "", fmt.Errorf("localdeps: npm ci --ignore-scripts (set DYNAMODB_ENDPOINT to use another DynamoDB): %w: %s", err, out)
	}
	if err := os.Rename(fresh, dir); err != nil {
		if _, there := os.Stat(dir); there == nil {
			return dir, nil // another process was faster
		}
		return "", err
	}
	return dir, nil
}
