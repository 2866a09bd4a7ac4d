package dynamolease

import (
	"errors"
	"fmt"
	"strings"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/aws/smithy-go"
)

// explain turns an answer that no retry will change into a *ConfigError. What may pass,
// such as throttling or a failure of DynamoDB's own, is returned as it is: the Fallback
// decides while it lasts. An expired token counts as lasting, since whoever configures
// the client has to look at it.
func (s *Store) explain(err error) error {
	if missing := (*types.ResourceNotFoundException)(nil); errors.As(err, &missing) {
		return &ConfigError{
			Setting: s.setting + ".Table",
			Hint: fmt.Sprintf("table %q does not exist in region %q: make it with CreateTable, or correct the name or the client's region",
				s.table, s.region),
			Err: err,
		}
	}
	var code smithy.APIError
	if !errors.As(err, &code) {
		return err
	}
	switch code.ErrorCode() {
	case "AccessDeniedException":
		return &ConfigError{
			Setting: s.setting + ".Table",
			Hint:    fmt.Sprintf("the client's role needs dynamodb:GetItem, dynamodb:BatchGetItem and dynamodb:UpdateItem on table %q, and dynamodb:Scan to list budgets", s.table),
			Err:     err,
		}
	case "UnrecognizedClientException", "InvalidSignatureException", "MissingAuthenticationTokenException",
		"IncompleteSignatureException", "ExpiredTokenException":
		return &ConfigError{
			Setting: "the DynamoDB client's credentials, region or clock",
			Hint:    fmt.Sprintf("refused in region %q", s.region),
			Err:     err,
		}
	case "ValidationException":
		return s.explainValidation(code, err)
	}
	return err
}

// explainValidation tells a wrong key from the other things that DynamoDB
// finds invalid, such as an item that is too large.
func (s *Store) explainValidation(code smithy.APIError, err error) error {
	if !strings.Contains(strings.ToLower(code.ErrorMessage()), "key") {
		return err
	}
	return &ConfigError{
		Setting: s.setting + ".Table",
		Hint:    fmt.Sprintf("table %q must have the single string key %q, see CreateTable", s.table, keyName),
		Err:     err,
	}
}
