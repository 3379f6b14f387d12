// Package franzgo pins franz-go, whose own tests run against the broker: `go test github.com/twmb/franz-go/pkg/kgo`.
package franzgo

import _ "github.com/twmb/franz-go/pkg/kgo"
