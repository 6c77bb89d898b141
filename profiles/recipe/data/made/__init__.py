"""Made-up documents with questions: logs, tables, mail and other papers, facts hidden in prose."""
